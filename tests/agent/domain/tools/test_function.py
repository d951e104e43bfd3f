import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from datetime import date
from typing import Annotated, Literal, NotRequired, TypedDict

import pytest

from services.agent.domain.chat import ToolContext, ToolEffect, ToolResult
from services.agent.domain.tools.function import Bounds, function_tool
from tests.agent.domain.tools.contexts import CONTEXT


class Place(TypedDict):
    """Where something is.

    Attributes:
        name: of the place.
    """

    name: str
    floor: NotRequired[Annotated[int, Bounds(-2, 9)]]


class Bare(TypedDict, total=False):
    name: str


@dataclasses.dataclass
class Point:
    x: int


async def greet(
    name: str,
    context: ToolContext,
    times: int = 1,
    loud: bool = False,
    language: Literal["en", "zh"] = "en",
    tags: list[str] | None = None,
    pause: float | None = None,
) -> str:
    """Greets somebody.

    Use it only once.

    Args:
        name: whom to greet,
            by first name.
        times: how often.
    """
    return f"{context.identity.user_id} greets {name} {times} times"


def odd(hint: object) -> Callable[..., Coroutine[None, None, str]]:
    async def odd(value: str) -> str:
        """Odd."""
        return ""

    odd.__annotations__["value"] = hint
    return odd


class TestSpec:
    def test_name_and_description_come_from_the_function(self) -> None:
        spec = function_tool(greet, idempotent=False).spec

        assert (spec.name, spec.idempotent) == ("greet", False)
        assert spec.description == "Greets somebody.\n\nUse it only once."

    def test_a_tool_that_does_not_say_changes_the_world_and_is_not_trusted(self) -> None:
        plain = function_tool(greet, idempotent=True).spec
        told = function_tool(greet, idempotent=True, effect=ToolEffect.OUTBOUND, trusted=True).spec

        assert (plain.effect, plain.trusted) == (ToolEffect.STATE_CHANGING, False)
        assert (told.effect, told.trusted) == (ToolEffect.OUTBOUND, True)

    def test_the_schema_comes_from_the_signature(self) -> None:
        assert function_tool(greet, idempotent=True).spec.input_schema == {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "whom to greet, by first name."},
                "times": {"type": "integer", "description": "how often.", "default": 1},
                "loud": {"type": "boolean", "default": False},
                "language": {"type": "string", "enum": ["en", "zh"], "default": "en"},
                "tags": {
                    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
                },
                "pause": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            },
            "required": ["name"],
            "additionalProperties": False,
        }

    def test_a_function_without_docstring_is_no_tool(self) -> None:
        async def bare() -> str:
            return ""

        with pytest.raises(TypeError, match="bare has no docstring"):
            function_tool(bare, idempotent=True)

    def test_examples_are_part_of_the_description_wherever_they_stand(self) -> None:
        async def double(text: str) -> str:
            """Doubles a text.

            Args:
                text: any.

            Examples:
                {"text": "a"} → aa
                {"text": ""} → nothing

            Returns:
                The text twice.

            Raises:
                ValueError: never.

            Use it twice.
            """
            return text * 2

        spec = function_tool(double, idempotent=True).spec

        assert spec.description == (
            "Doubles a text.\n\n"
            'Examples:\n    {"text": "a"} → aa\n    {"text": ""} → nothing\n\n'
            "Use it twice."
        )
        assert spec.input_schema["properties"] == {
            "text": {"type": "string", "description": "any."}
        }

    @pytest.mark.parametrize(
        ("hint", "schema"),
        [
            (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (Annotated[float, Bounds(most=0.5)], {"type": "number", "maximum": 0.5}),
            (Annotated[str, Bounds(1, 9)], {"type": "string", "minLength": 1, "maxLength": 9}),
            (
                Annotated[list[str], Bounds(1)],
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ),
            (
                Place,
                {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "of the place."},
                        "floor": {"type": "integer", "minimum": -2, "maximum": 9},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
            ),
            (
                Bare,
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": [],
                    "additionalProperties": False,
                },
            ),
        ],
    )
    def test_limits_and_objects_have_a_schema(self, hint: object, schema: object) -> None:
        properties = function_tool(odd(hint), idempotent=True).spec.input_schema["properties"]

        assert properties == {"value": schema}

    @pytest.mark.parametrize(
        "hint",
        [
            bytes,
            dict,
            dict[int, str],
            int | str,
            date,
            Point,
            tuple[int, int],
            Literal[1, 2],
            Annotated[bool, Bounds(1)],
            Annotated[int, "small"],
        ],
    )
    def test_a_type_without_schema_is_refused(self, hint: object) -> None:
        with pytest.raises(TypeError, match="no schema is known"):
            function_tool(odd(hint), idempotent=True)

    def test_a_parameter_without_type_is_refused(self) -> None:
        untyped = odd(str)
        del untyped.__annotations__["value"]

        with pytest.raises(TypeError, match="no schema is known"):
            function_tool(untyped, idempotent=True)


class TestRun:
    async def test_arguments_and_context_are_given(self) -> None:
        tool = function_tool(greet, idempotent=True)

        assert await tool.run({"name": "Bob", "times": 2}, CONTEXT) == ToolResult(
            "ann greets Bob 2 times"
        )

    async def test_a_whole_result_is_passed_on(self) -> None:
        async def fail() -> ToolResult:
            """Fails."""
            return ToolResult("no", error="no")

        tool = function_tool(fail, idempotent=True)

        assert await tool.run({}, CONTEXT) == ToolResult("no", error="no")

    async def test_calls_at_once_do_not_meet(self) -> None:
        every = asyncio.Barrier(3)

        async def meet(name: str, context: ToolContext) -> str:
            """Waits for the others."""
            await every.wait()
            return f"{name} {context.call_key}"

        tool = function_tool(meet, idempotent=True)
        async with asyncio.timeout(5):
            results = await asyncio.gather(
                *(
                    tool.run({"name": name}, dataclasses.replace(CONTEXT, call_key=f"key {name}"))
                    for name in "abc"
                )
            )

        assert [result.text for result in results] == ["a key a", "b key b", "c key c"]
