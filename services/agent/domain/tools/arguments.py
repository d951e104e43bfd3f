"""Reads the arguments that a model wrote for a tool. Pure."""

import json
from collections.abc import Mapping
from typing import Final

from jsonschema import Draft202012Validator

from services.agent.domain.chat import ToolSpec
from services.common.text import Json, clean_json

_MOST_VIOLATIONS: Final = 5
_MOST_CHARS: Final = 300


class ArgumentsError(Exception):
    """What is wrong with the arguments, in words that help the model to mend them."""


def read_arguments(arguments_json: str, spec: ToolSpec) -> Mapping[str, Json]:
    """The arguments of a call; none at all are an empty object.

    Raises:
        ArgumentsError: they are no JSON object, or do not keep the tool's schema.
    """
    arguments = _parsed(arguments_json)
    if not isinstance(arguments, dict):
        raise ArgumentsError(
            f"the arguments must be a JSON object, not {_kind(arguments)}. {_wanted(spec)}"
        )
    violations = _violations(arguments, spec)
    if violations:
        raise ArgumentsError(f"the arguments do not fit: {violations}. {_wanted(spec)}")
    return {str(key): clean_json(value) for key, value in arguments.items()}


def _parsed(text: str) -> object:
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ArgumentsError(
            f"the arguments are not a JSON object; the JSON breaks at {place}: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ArgumentsError(
            "the arguments are not a JSON object that can be read: too deep, or a number too long"
        ) from error


def _violations(arguments: object, spec: ToolSpec) -> str:
    found = Draft202012Validator(spec.input_schema).iter_errors(arguments)
    told = [
        f"{'.'.join(str(part) for part in error.absolute_path) or 'object'}: "
        f"{_shortened(error.message)}"
        for error, _ in zip(found, range(_MOST_VIOLATIONS), strict=False)
    ]
    return "; ".join(told)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _wanted(spec: ToolSpec) -> str:
    schema = json.dumps(spec.input_schema, ensure_ascii=False)
    return f"The schema is {schema}" if len(schema) <= 2000 else "See the tool's schema."


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
