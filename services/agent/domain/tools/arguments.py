"""Reads the arguments that a model wrote for a tool. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from services.agent.domain.chat import ToolSpec
from services.agent.domain.drafts import MAX_ARGUMENTS_BYTES
from services.agent.domain.tools.checking import UncheckableError, violations
from services.agent.domain.tools.repair import mended_string, mended_text, mended_values
from services.agent.domain.tools.schemas import deeper_than, plainly_fits, schema_json
from services.common.text import Json, clean, clean_json

MOST_DEPTH: Final = 100
"""How deep arguments may be nested; whoever walks deeper ones may come to the end of its stack."""

_MOST_VIOLATIONS: Final = 5
_MOST_CHARS: Final = 300


class ArgumentsError(Exception):
    """What is wrong with the arguments, in words that help the model to mend them."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a tool is called with.

    Attributes:
        values: by name; they keep the tool's schema.
        mended: what was not quite right and has been put right; "" stands for the text as a whole.
    """

    values: Mapping[str, Json]
    mended: tuple[str, ...] = ()


def read_arguments(arguments_json: str, spec: ToolSpec) -> Arguments:
    """The arguments of a call; none at all are an empty object.

    What has only one possible meaning is mended first.

    Raises:
        ArgumentsError: they are no JSON object, or do not keep the tool's schema.
    """
    written, mended = _parsed(arguments_json, spec)
    if not isinstance(written, dict):
        raise ArgumentsError(
            f"the arguments must be a JSON object, not {_kind(written)}. {_wanted(spec)}"
        )
    meant, names = mended_values(written, spec.input_schema)
    if deeper_than(meant, MOST_DEPTH):
        raise ArgumentsError(f"the arguments are nested deeper than {MOST_DEPTH} levels")
    # Before the check: a NaN becomes null, which is no number.
    values = {clean(name): clean_json(value) for name, value in meant.items()}
    if not plainly_fits(values, spec) and (wrong := _violations(values, spec)):
        told = _violations(written, spec) or wrong
        raise ArgumentsError(f"the arguments do not fit: {told}. {_wanted(spec)}")
    return Arguments(values, (*([""] if mended else []), *names))


def _parsed(text: str, spec: ToolSpec) -> tuple[object, bool]:
    """What is written, and whether it had to be mended."""
    if len(text) > MAX_ARGUMENTS_BYTES:
        # No message holds them, so they were cut or will be; to look for what is wrong takes long.
        raise ArgumentsError(f"the arguments are longer than {MAX_ARGUMENTS_BYTES} bytes")
    if not text.strip():
        return {}, False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        mended = mended_text(text)
        if mended is None:
            raise _unreadable(error) from error
        return mended, True
    if isinstance(value, str):
        meant = mended_string(value, spec.input_schema)
        return (value, False) if meant is None else (meant, True)
    return value, False


def _unreadable(error: Exception) -> ArgumentsError:
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}, column {error.colno}"
        return ArgumentsError(
            f"the arguments are not a JSON object; the JSON breaks at {place}: {error.msg}"
        )
    return ArgumentsError(
        "the arguments are not a JSON object that can be read: too deep, or a number too long"
    )


def _violations(arguments: object, spec: ToolSpec) -> str:
    told = list[str]()
    try:
        for error in islice(violations(arguments, spec.input_schema), _MOST_VIOLATIONS):
            where = ".".join(str(part) for part in error.absolute_path) or "object"
            told.append(f"{where}: {_shortened(error.message)}")
    except UncheckableError as error:
        told.append(f"object: cannot be checked: {error}")
    return "; ".join(told)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _wanted(spec: ToolSpec) -> str:
    schema = schema_json(spec)
    return f"The schema is {schema}" if len(schema) <= 2000 else "See the tool's schema."


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
