"""Makes a tool of a typed async function: its docstring describes it, its signature is its schema.

    async def current_time(timezone: str = "UTC") -> str:
        '''Tells the present date and time.

        Args:
            timezone: an IANA name such as "Europe/Berlin".
        '''

    tool = function_tool(current_time, idempotent=True)

A parameter without a default is required. A parameter of type `ToolContext` is given by the loop
and is never part of the schema. Parameters may be of type str, int, float, bool, a `Literal` of
strings, a list of one of these, or one of these or None.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Final, Literal, Union, get_args, get_origin, get_type_hints

from services.agent.domain.chat import ToolContext, ToolResult, ToolSpec
from services.common.text import Json

ToolFunction = Callable[..., Awaitable[str | ToolResult]]

_SIMPLE: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
_ARGUMENT = re.compile(r"^    (\w+):\s*(.*(?:\n {5,}.*)*)", re.MULTILINE)


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


def function_tool(function: ToolFunction, *, idempotent: bool) -> FunctionTool:
    """The tool that a function makes.

    Args:
        function: named and documented as the tool is to be.
        idempotent: a repeated call does no harm.

    Raises:
        TypeError: a parameter has a type that no schema is known for, or there is no docstring.
    """
    hints = get_type_hints(function)
    name = getattr(function, "__name__", "")
    description, told = _read(inspect.getdoc(function) or "")
    if not description:
        raise TypeError(f"tool {name} has no docstring")
    context, properties, required = None, dict[str, Json](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        if hints[parameter.name] is ToolContext:
            context = parameter.name
            continue
        properties[parameter.name] = _described(hints[parameter.name], told.get(parameter.name))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return FunctionTool(
        ToolSpec(name, description, object_schema(properties, required), idempotent),
        function,
        context,
    )


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
    description, _, arguments = docstring.partition("\nArgs:\n")
    told = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    return description.strip(), told


def _described(hint: object, description: str | None) -> dict[str, Json]:
    schema = _schema(hint)
    return {**schema, "description": description} if description else schema


def _schema(hint: object) -> dict[str, Json]:
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0])}
    if origin in {Union, UnionType} and NoneType in parts and len(parts) == 2:
        inner = _schema(next(part for part in parts if part is not NoneType))
        return {"anyOf": [inner, {"type": "null"}]}
    raise TypeError(f"no schema is known for parameters of type {hint}")
