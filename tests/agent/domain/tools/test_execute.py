import asyncio
from collections.abc import Mapping

import pytest

from services.agent.domain.chat import ToolResult
from services.agent.domain.errors import KnowledgeUnavailableError
from services.agent.domain.tools.execute import ToolBounds, execute
from services.common.text import Json
from tests.agent.domain.tools.contexts import CONTEXT
from tests.agent.turns import PlainTool, call

BOUNDS = ToolBounds(seconds=5, result_chars=100)


async def run(tool: PlainTool, arguments: str = "{}", bounds: ToolBounds = BOUNDS) -> ToolResult:
    return await execute(call("c", "look", arguments), {"look": tool}, CONTEXT, bounds=bounds)


def raising(error: Exception) -> PlainTool:
    def fail(arguments: Mapping[str, Json]) -> ToolResult:
        raise error

    return PlainTool(gives=fail)


class TestExecute:
    async def test_a_result_comes_as_it_is(self) -> None:
        assert await run(PlainTool()) == ToolResult("found")

    async def test_an_unknown_tool_is_told_which_there_are(self) -> None:
        tools = {"look": PlainTool(), "book": PlainTool("book")}

        result = await execute(call("c", "lock" * 99), tools, CONTEXT, bounds=BOUNDS)

        assert result.error == "unknown_tool"
        assert result.text.endswith("; there are: book, look.")
        assert len(result.text) < 200

    @pytest.mark.parametrize("arguments", ['{"what": ', '{"what": 5}', '{"user_id": "u2"}', "[]"])
    async def test_a_tool_is_not_run_with_arguments_that_do_not_fit(self, arguments: str) -> None:
        tool = PlainTool()

        result = await run(tool, arguments)

        assert result.error == "invalid_arguments"
        assert tool.ran == []

    async def test_a_failure_that_may_be_told_is_told(self) -> None:
        result = await run(raising(KnowledgeUnavailableError("The service is down.")))

        assert result == ToolResult("Error: The service is down.", error="knowledge_unavailable")

    @pytest.mark.parametrize(
        "error", [RuntimeError("secret at /etc/x"), TimeoutError("secret"), AssertionError()]
    )
    async def test_any_other_failure_is_told_without_its_text(self, error: Exception) -> None:
        result = await run(raising(error))

        assert result == ToolResult(
            "Error: look failed; this is a fault of the tool.", error="failed"
        )

    async def test_a_tool_that_takes_too_long_is_stopped(self) -> None:
        async def never(arguments: Mapping[str, Json]) -> None:
            await asyncio.Event().wait()

        result = await run(PlainTool(hook=never), bounds=ToolBounds(seconds=0.02))

        assert result == ToolResult("Error: look took longer than 0.02 s.", error="timeout")

    async def test_being_cancelled_passes_through(self) -> None:
        async def never(arguments: Mapping[str, Json]) -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await run(PlainTool(hook=never))

    async def test_a_long_result_is_cut_and_says_so(self) -> None:
        result = await run(PlainTool(gives=lambda arguments: ToolResult("x" * 300_000)))

        assert len(result.text) == 100
        assert result.text.endswith("x\n[Cut here: the full result has 300000 characters.]")
