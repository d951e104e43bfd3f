"""Checks values against JSON Schemas that strangers wrote: bounded in work, and never by network.

A schema of a few lines can ask for more steps than there is time, by references that fan out or
lead back to themselves, or by patterns that backtrack. So each keyword that is looked at counts,
patterns are matched within a time limit, and a reference that leads out of the schema is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, TypeAlias

import regex
from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from services.agent.domain.tools.schemas import SameSchema
from services.common.text import Json

MOST_STEPS: Final = 20_000
"""How many keywords are looked at in one check."""

PATTERN_SECONDS: Final = 0.05

_MOST_VALIDATORS: Final = 256
_STEPS: ContextVar[list[int]] = ContextVar("steps")

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], "Iterable[ValidationError] | None"]


class UncheckableError(Exception):
    """A value could not be checked: the schema leads nowhere, or asks for too much work."""


def violations(value: object, schema: Mapping[str, Json]) -> Iterator[ValidationError]:
    """What is wrong with a value, one after the other.

    Args:
        value: what JSON was read into.
        schema: of JSON Schema 2020-12; the same object each time, as its validator is kept.

    Raises:
        UncheckableError: no further violation can be found.
    """
    found = _validator(SameSchema(schema)).iter_errors(value)
    steps = [0]
    while True:
        token = _STEPS.set(steps)
        try:
            violation = next(found, None)
        except (RecursionError, Unresolvable, regex.error) as error:
            raise UncheckableError("the schema cannot be followed") from error
        finally:
            _STEPS.reset(token)
        if violation is None:
            return
        yield violation


def _counted(keyword: _Keyword) -> _Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        steps = _STEPS.get()
        steps[0] += 1
        if steps[0] > MOST_STEPS:
            raise UncheckableError("the check takes too many steps")
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _matches(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError as error:
        raise UncheckableError("a pattern takes too long to match") from error


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_matches(pattern, name) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError(
                f"Additional properties are not allowed ({name!r} was unexpected)"
            )
        else:
            yield from validator.descend(value, allowed, path=name)


_OWN: Final[Mapping[str, _Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
_Validator: Final = validators.extend(  # type: ignore[no-untyped-call]  # by its stubs
    Draft202012Validator,
    {
        name: _counted(keyword)
        for name, keyword in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
    },
)


@lru_cache(_MOST_VALIDATORS)
def _validator(schema: SameSchema) -> Any:
    # An empty registry: the library's own would fetch what a reference names.
    return _Validator(schema.schema, registry=Registry())
