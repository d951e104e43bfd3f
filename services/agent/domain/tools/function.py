"""Makes a tool of a typed async function: its docstring describes it, its signature is its schema.

    async def current_time(timezone: str = "UTC") -> str:
        '''Tells the present date and time.

        Args:
            timezone: an IANA name such as "Europe/Berlin".
        '''

    tool = function_tool(current_time, idempotent=True, effect=ToolEffect.READ_ONLY)

A parameter without a default is required. A parameter of type `ToolContext` is given by the loop
and is never part of the schema. Parameters may be of type str, int, float, bool, a `Literal` of
strings, a list of one of these, a dict from str to one of these, a `TypedDict` of them, whose
docstring describes them under "Attributes:", or one of these or None; limits are set by
`Annotated[int, Bounds(1, 9)]`. Any other type is refused when the tool is made.

Sections "Raises:" and "Returns:" of the docstring are for people; all others, such as "Examples:",
are part of the description. A model may call a tool several times at once.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from services.agent.domain.chat import ToolContext, ToolEffect, ToolResult, ToolSpec
from services.common.text import Json

ToolFunction = Callable[..., Awaitable[str | ToolResult]]

_SIMPLE: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
_LIMITS: Final[Mapping[object, tuple[str, str]]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}
_ARGUMENT = re.compile(r"^    (\w+):\s*(.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a number, or of the length of a string or list; both are within.

    Attributes:
        least: the smallest; None for none.
        most: the largest; None for none.
    """

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function as a tool.

    Attributes:
        spec: what a model is told of it.
        function: does it.
        context_parameter: the name of the parameter that takes the context, if one does.
    """

    spec: ToolSpec
    function: ToolFunction
    context_parameter: str | None

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        """Call the function with the arguments."""
        given = {self.context_parameter: context} if self.context_parameter else {}
        result = await self.function(**arguments, **given)
        return ToolResult(result) if isinstance(result, str) else result


def function_tool(
    function: ToolFunction,
    *,
    idempotent: bool,
    effect: ToolEffect = ToolEffect.STATE_CHANGING,
    trusted: bool = False,
) -> FunctionTool:
    """The tool that a function makes.

    Args:
        function: named and documented as the tool is to be.
        idempotent: a repeated call does no harm.
        effect: what a call does to the world.
        trusted: its results hold nothing that others wrote.

    Raises:
        TypeError: a parameter has a type that no schema is known for, or there is no docstring.
    """
    hints = get_type_hints(function, include_extras=True)
    name = getattr(function, "__name__", "")
    description, told = _read(inspect.getdoc(function) or "")
    if not description:
        raise TypeError(f"tool {name} has no docstring")
    context, properties, required = None, dict[str, Json](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is ToolContext:
            context = parameter.name
            continue
        properties[parameter.name] = {
            **_described(hint, told.get(parameter.name)),
            **_default(parameter.default),
        }
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema = object_schema(properties, required)
    spec = ToolSpec(name, description, schema, idempotent, effect, trusted)
    return FunctionTool(spec, function, context)


def object_schema(properties: Mapping[str, Json], required: list[str]) -> dict[str, Json]:
    """The JSON Schema of arguments that takes these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _read(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring's description, and what it says of each argument."""
    description, arguments, dropped = list[str](), list[str](), list[str]()
    sections = {
        "Args:": arguments,
        "Attributes:": arguments,
        "Raises:": dropped,
        "Returns:": dropped,
    }
    section = description
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            section = sections.get(line, description)
        if line not in sections:
            section.append(line)
    told = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall("\n".join(arguments))}
    return re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip(), told


def _described(hint: object, description: str | None) -> dict[str, Json]:
    schema = _schema(hint)
    return {**schema, "description": description} if description else schema


def _default(value: object) -> dict[str, Json]:
    """What is said of a default; None stands for leaving the argument out, which goes unsaid."""
    return {"default": value} if isinstance(value, str | int | float) else {}


def _schema(hint: object) -> dict[str, Json]:
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if is_typeddict(hint):
        return _typed_dict(hint)
    if origin is Literal and all(isinstance(part, str) for part in parts):
        return {"type": "string", "enum": list(parts)}
    if origin in {Required, NotRequired}:
        return _schema(parts[0])
    if origin is list:
        return {"type": "array", "items": _schema(parts[0])}
    if origin is dict and parts[0] is str:
        return {"type": "object", "additionalProperties": _schema(parts[1])}
    if origin is Annotated:
        return _within(_schema(parts[0]), parts[1:])
    return _optional(hint)


def _optional(hint: object) -> dict[str, Json]:
    parts = get_args(hint)
    if get_origin(hint) in {Union, UnionType} and NoneType in parts and len(parts) == 2:
        inner = _schema(next(part for part in parts if part is not NoneType))
        return {"anyOf": [inner, {"type": "null"}]}
    raise TypeError(f"no schema is known for parameters of type {hint}")


def _typed_dict(hint: object) -> dict[str, Json]:
    _, told = _read(inspect.cleandoc(hint.__doc__ or ""))
    properties: dict[str, Json] = {
        key: _described(value, told.get(key))
        for key, value in get_type_hints(hint, include_extras=True).items()
    }
    required: frozenset[str] = getattr(hint, "__required_keys__", frozenset())
    return object_schema(properties, [key for key in properties if key in required])


def _within(schema: dict[str, Json], annotations: tuple[object, ...]) -> dict[str, Json]:
    limits = _LIMITS.get(schema.get("type"))
    for each in annotations:
        if not isinstance(each, Bounds) or limits is None:
            raise TypeError(f"no schema is known for the annotation {each}")
        given = zip(limits, (each.least, each.most), strict=True)
        schema |= {word: limit for word, limit in given if limit is not None}
    return schema
