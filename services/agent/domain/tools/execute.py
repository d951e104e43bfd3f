"""Executes one tool call of a model: whatever happens, exactly one result comes of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from services.agent.domain.chat import ToolContext, ToolResult
from services.agent.domain.messages import ToolCall
from services.agent.domain.ports import Tool
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from services.common.errors import ServiceError
from services.common.text import Json


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """What a tool call may take.

    Attributes:
        seconds: wall time.
        result_chars: characters of its result that are kept.
    """

    seconds: float = 60.0
    result_chars: int = 32_000


async def execute(
    call: ToolCall, tools: Mapping[str, Tool], context: ToolContext, *, bounds: ToolBounds
) -> ToolResult:
    """The result of a call, or in its place what went wrong, in words for the model.

    Neither a trace nor a text that was not written for a reader gets into it; those are logged.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return _error("unknown_tool", f"there is no tool {call.name[:64]!r}; there are: {known}")
    try:
        arguments = read_arguments(call.arguments_json, tool.spec)
    except ArgumentsError as error:
        return _error("invalid_arguments", str(error))
    return _capped(await _run(tool, arguments, context, bounds), bounds.result_chars)


async def _run(
    tool: Tool, arguments: Mapping[str, Json], context: ToolContext, bounds: ToolBounds
) -> ToolResult:
    try:
        async with asyncio.timeout(bounds.seconds) as limit:
            return await tool.run(arguments, context)
    except ServiceError as error:
        return _error(error.reason.lower(), error.message)
    except Exception as error:  # noqa: BLE001 -- a tool may fail in any way; the run goes on
        if isinstance(error, TimeoutError) and limit.expired():
            return _error("timeout", f"{tool.spec.name} took longer than {bounds.seconds:g} s")
        structlog.get_logger("tools").exception(
            "tool failed", tool=tool.spec.name, run_id=context.run_id
        )
        return _error("failed", f"{tool.spec.name} failed; this is a fault of the tool")


def _error(word: str, text: str) -> ToolResult:
    return ToolResult(f"Error: {text.removesuffix('.')}.", error=word)


def _capped(result: ToolResult, most: int) -> ToolResult:
    if len(result.text) <= most:
        return result
    note = f"\n[Cut here: the full result has {len(result.text)} characters.]"
    return replace(result, text=result.text[: max(most - len(note), 0)] + note)
