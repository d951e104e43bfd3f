"""Makes the input schema that a server gives into one that models and the check can take. Pure.

It is kept whole, with its `$defs` and its references. What would not work is refused: a reference
that leads out of the schema is never followed, let alone fetched.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import regex
from jsonschema import Draft202012Validator, FormatChecker, SchemaError

from services.agent.domain.mcp.text import visible
from services.agent.domain.tools.schemas import deeper_than
from services.common.text import Json, clean_json, shortened

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
MAX_PATTERN_CHARS: Final = 1000

_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLES: Final = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
# They change what references mean, or which rules hold.
_REFUSED: Final = ("$id", "$schema", "$dynamicRef", "$recursiveRef", "$vocabulary")
_TEXTS: Final = ("title", "description")
_INDEX = re.compile(r"0|[1-9]\d{0,5}")


class UnusableSchemaError(Exception):
    """Why a schema cannot be used, in words for a person."""


def usable_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema as it is sent to models and checked.

    Raises:
        UnusableSchemaError: it is too large, broken, or refers to what is not in it.
    """
    if deeper_than(schema, MAX_SCHEMA_DEPTH):
        raise UnusableSchemaError(f"its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if len(json.dumps(schema, ensure_ascii=False).encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
        raise UnusableSchemaError(f"its schema is larger than {MAX_SCHEMA_BYTES} bytes")
    if schema.get("type", "object") != "object":
        raise UnusableSchemaError('its schema is not of type "object"')
    own = {key: clean_json(each) for key, each in schema.items() if key not in {"$schema", "$id"}}
    root: dict[str, Json] = {**own, "type": "object"}
    root.setdefault("properties", {})
    _check(root)
    for inner in _schemas(root):
        _check_one(inner, root)
    return {key: _shown(each, key) for key, each in root.items()}


def _check(root: Mapping[str, Json]) -> None:
    """Check it against the rules for schemas; no format is looked at, as that takes any time."""
    try:
        Draft202012Validator.check_schema(root, format_checker=FormatChecker(formats=()))
    except (SchemaError, RecursionError) as error:
        reason = error.message if isinstance(error, SchemaError) else "it leads nowhere"
        raise UnusableSchemaError(
            f"its schema is not valid JSON Schema: {shortened(reason, 200)}"
        ) from error


def _check_one(schema: Mapping[str, Json], root: Mapping[str, Json]) -> None:
    refused = next((key for key in _REFUSED if key in schema), None)
    if refused is not None:
        raise UnusableSchemaError(f"its schema uses {refused} within")
    if "patternProperties" in schema and "unevaluatedProperties" in schema:
        raise UnusableSchemaError("its schema mixes patternProperties and unevaluatedProperties")
    reference = schema.get("$ref")
    if reference is not None and not isinstance(_target(str(reference), root), (Mapping, bool)):
        raise UnusableSchemaError(
            f"its schema refers to {shortened(str(reference), 200)!r}, which is not in it; "
            "nothing is ever fetched"
        )
    patterns = schema.get("patternProperties")
    names = list(patterns) if isinstance(patterns, Mapping) else []
    for pattern in [*names, *([schema["pattern"]] if "pattern" in schema else [])]:
        _check_pattern(str(pattern))


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnusableSchemaError(f"a pattern in its schema is over {MAX_PATTERN_CHARS} characters")
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError) as error:
        raise UnusableSchemaError("a pattern in its schema cannot be read") from error


def _schemas(root: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Every schema within a schema, those that references lead to as well; each one once."""
    waiting: list[Json] = [root]
    seen: set[int] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        waiting += _inner(schema)
        if isinstance(schema.get("$ref"), str):
            waiting.append(_target(str(schema["$ref"]), root))


def _inner(schema: Mapping[str, Json]) -> Iterator[Json]:
    for key in _MAPS:
        each = schema.get(key)
        yield from each.values() if isinstance(each, Mapping) else ()
    for key in _LISTS:
        each = schema.get(key)
        yield from each if isinstance(each, list) else ()
    yield from (schema[key] for key in _SINGLES if key in schema)


def _target(reference: str, root: Mapping[str, Json]) -> Json:
    """What a reference leads to; None if that is not in the schema."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found: Json = root
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _shown(value: Json, key: str) -> Json:
    """The value with nothing invisible in its titles and descriptions."""
    match value:
        case str():
            return visible(value) if key in _TEXTS else value
        case Mapping():
            return {name: _shown(each, name) for name, each in value.items()}
        case list():
            return [_shown(each, "") for each in value]
        case _:
            return value
