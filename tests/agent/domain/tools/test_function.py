from typing import Literal

import pytest

from services.agent.domain.chat import ToolContext, ToolResult
from services.agent.domain.tools.function import function_tool
from tests.agent.domain.tools.contexts import CONTEXT


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


class TestSpec:
    def test_name_and_description_come_from_the_function(self) -> None:
        spec = function_tool(greet, idempotent=False).spec

        assert (spec.name, spec.idempotent) == ("greet", False)
        assert spec.description == "Greets somebody.\n\nUse it only once."

    def test_the_schema_comes_from_the_signature(self) -> None:
        assert function_tool(greet, idempotent=True).spec.input_schema == {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "whom to greet, by first name."},
                "times": {"type": "integer", "description": "how often."},
                "loud": {"type": "boolean"},
                "language": {"type": "string", "enum": ["en", "zh"]},
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

    @pytest.mark.parametrize("hint", [bytes, dict[str, str], int | str])
    def test_a_type_without_schema_is_refused(self, hint: object) -> None:
        async def odd(value: str) -> str:
            """Odd."""
            return ""

        odd.__annotations__["value"] = hint

        with pytest.raises(TypeError, match="no schema is known"):
            function_tool(odd, idempotent=True)


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
