"""Mends arguments that are not quite what they should be, where only one meaning is possible. Pure.

Nothing is guessed: text that breaks off is never completed, and no value is changed into one that
might mean something else.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from services.common.text import Json

_MAX_LITERAL_CHARS: Final = 20_000
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")
_BOOLEANS: Final[Mapping[str, bool]] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
}
_JSON_TYPES: Final[Mapping[type, frozenset[str]]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}


def mended_text(text: str) -> object | None:
    """The object that a text plainly means, though it is no JSON; None if there is none.

    It may stand in a fence, have line breaks within its strings or commas after its last items, or
    be a literal of Python.
    """
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    if not text.startswith("{"):
        return None
    readings: tuple[Callable[[], object], ...] = (
        lambda: json.loads(text, strict=False),
        lambda: json.loads(_without_last_commas(text), strict=False),
        lambda: _literal(text),
    )
    for reading in readings:
        try:
            return reading()
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def mended_string(text: str, schema: Mapping[str, Json]) -> object | None:
    """The object that a JSON string means in place of an object; None if there is none.

    It is an object written into a string, or the only argument that the tool asks for.
    """
    inner = text.strip()
    if inner.startswith(("{", "[", "```")):
        try:
            value = json.loads(inner)
        except (ValueError, RecursionError):
            value = mended_text(inner)
        return value if isinstance(value, dict) else None
    required = schema.get("required")
    if not isinstance(required, list) or len(required) != 1:
        return None
    name = str(required[0])
    return {name: text} if _types(_properties(schema).get(name)) == {"string"} else None


def mended_values(
    arguments: Mapping[str, Json], schema: Mapping[str, Json]
) -> tuple[dict[str, Json], list[str]]:
    """The arguments with their values in the types that the schema asks for, and which were mended.

    A null is left out where the argument may be left out, and no null is asked for.
    """
    properties, required = _properties(schema), schema.get("required")
    required = required if isinstance(required, list) else []
    mended, names = dict[str, Json](), list[str]()
    for name, value in arguments.items():
        types = _types(properties.get(name))
        if not types or types & _JSON_TYPES.get(type(value), frozenset()):
            mended[name] = value
            continue
        if value is None and name not in required:
            names.append(name)
            continue
        readings = list(_readings(value, types))
        names += [name] if readings else []
        mended[name] = readings[0] if readings else value
    return mended, names


def _readings(value: Json, types: frozenset[str]) -> Iterator[Json]:
    """What a value means as one of these types."""
    match value:
        case bool():
            return
        case int() if "string" in types:
            yield str(value)
        case float() if "integer" in types and value.is_integer() and abs(value) < 2**53:
            yield int(value)
        case str():
            yield from _read_string(value.strip(), types)


def _read_string(text: str, types: frozenset[str]) -> Iterator[Json]:
    if "boolean" in types and text in _BOOLEANS:
        yield _BOOLEANS[text]
    if types & {"integer", "number"} and _WHOLE.fullmatch(text):
        yield int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        yield float(text)
    if types & {"array", "object"} and text.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        if types & _JSON_TYPES[type(value)]:
            yield value


def _without_last_commas(text: str) -> str:
    return _STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text)


def _literal(text: str) -> object:
    """The value of a Python literal that JSON has, too."""
    if len(text) > _MAX_LITERAL_CHARS:
        raise ValueError("too long")
    value: object = ast.literal_eval(text)
    if json.loads(json.dumps(value)) != value:
        raise ValueError("JSON has no such value")
    return value


def _properties(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _types(schema: Json) -> frozenset[str]:
    """The types that a property may have; none where that is not plainly said."""
    if not isinstance(schema, Mapping):
        return frozenset()
    match schema:
        case {"type": str() as one}:
            return frozenset({one})
        case {"type": list() as several}:
            return frozenset(str(each) for each in several)
        case {"anyOf": list() as choices}:
            types = [_types(choice) for choice in choices]
            return frozenset().union(*types) if all(types) else frozenset()
    return frozenset()
