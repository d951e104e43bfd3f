"""What is worked out of a tool's schema once, as tools keep theirs. Pure."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from services.agent.domain.chat import ToolSpec
from services.common.text import Json

Check: TypeAlias = Callable[[object], bool]
"""Whether a value plainly keeps a schema; False where that takes a closer look."""

_MOST: Final = 256
_DEEPEST: Final = 10
_NOTES: Final = frozenset({"type", "title", "description", "default", "examples"})
_NUMBERS: Final = (int, float)


class SameSchema:
    """A schema as itself: equal to no other, whatever that says."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameSchema) and self.schema is other.schema


def schema_json(spec: ToolSpec) -> str:
    """A tool's schema as JSON."""
    return _json(SameSchema(spec.input_schema))


def plainly_fits(arguments: object, spec: ToolSpec) -> bool:
    """Whether arguments keep a tool's schema, told quickly; False where `checking` must."""
    check = _check(SameSchema(spec.input_schema))
    return check is not None and check(arguments)


@lru_cache(_MOST)
def _json(schema: SameSchema) -> str:
    return json.dumps(schema.schema, ensure_ascii=False)


@lru_cache(_MOST)
def _check(schema: SameSchema) -> Check | None:
    return _check_of(schema.schema, _DEEPEST)


def _check_of(schema: Json, depth: int) -> Check | None:
    """A check of what most schemas consist of; None for one that has anything else."""
    if not isinstance(schema, Mapping) or not depth:
        return None
    match schema.get("type"):
        case "object":
            return _object_check(schema, depth - 1)
        case "string" if schema.keys() <= _NOTES:
            return lambda value: type(value) is str
        case "boolean" if schema.keys() <= _NOTES:
            return lambda value: type(value) is bool
        case "integer" if schema.keys() <= _NOTES:
            return lambda value: type(value) is int
        case "number" if schema.keys() <= _NOTES:
            return lambda value: type(value) in _NUMBERS
        case "array" if schema.keys() <= _NOTES | {"items"}:
            return _array_check(schema, depth - 1)
        case _:
            return None


def _array_check(schema: Mapping[str, Json], depth: int) -> Check | None:
    check = _check_of(schema.get("items"), depth)
    if check is None:
        return None
    return lambda value: type(value) is list and all(map(check, value))


def _object_check(schema: Mapping[str, Json], depth: int) -> Check | None:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    known = schema.keys() <= _NOTES | {"properties", "required", "additionalProperties"}
    if not (known and isinstance(properties, Mapping) and isinstance(required, list)):
        return None
    found = {name: _check_of(each, depth) for name, each in properties.items()}
    checks = {name: check for name, check in found.items() if check is not None}
    if len(checks) < len(found):
        return None

    def fits(value: object) -> bool:
        return (
            type(value) is dict
            and all(name in checks and checks[name](item) for name, item in value.items())
            and all(name in value for name in required)
        )

    return fits


def deeper_than(value: object, most: int) -> bool:
    """Whether a value is nested deeper than so many levels."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            if isinstance(each, (Mapping, list))
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return False
    return any(isinstance(each, (Mapping, list)) for each in level)
