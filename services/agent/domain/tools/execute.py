"""Executes one tool call of a model: whatever happens, exactly one result comes of it.

A tool runs in a task of its own, so that one which does not stop when it is told to holds up
nobody: its call is answered as any other that took too long, and what it gives later is dropped. A
tool that blocks the event loop is beyond that; its worker's leases lapse, and others go on.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from services.agent.domain.chat import ToolContext, ToolResult, ToolSpec
from services.agent.domain.drafts import MAX_TEXT_BYTES
from services.agent.domain.messages import ToolCall, Whole
from services.agent.domain.ports import Tool
from services.agent.domain.soundness import check_sound
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from services.agent.domain.tools.errors import ToolError
from services.agent.domain.tools.outside import QUOTATION_CHARS, quoted
from services.agent.domain.tools.pieces import end_of_piece
from services.agent.domain.tools.read_more import how_to_go_on
from services.common.errors import ServiceError
from services.common.tasks import BackgroundTasks
from services.common.text import Json

STOP_GRACE: Final = 0.5
"""Seconds for a tool that is told to stop to do so."""


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
    call: ToolCall,
    tools: Mapping[str, Tool],
    context: ToolContext,
    *,
    bounds: ToolBounds,
    tasks: BackgroundTasks,
    result_id: str = "",
) -> ToolResult:
    """The result of a call, or in its place what went wrong, in words for the model.

    Neither a trace nor a text that was not written for a reader gets into it; those are logged.

    Args:
        call: as the model wrote it.
        tools: those that it may call, by name.
        context: what the tool may know.
        bounds: what the call may take.
        tasks: owns the tool's task, also beyond this call where the tool does not stop.
        result_id: what the model reads on with if the result is cut; empty where it cannot.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return _error("unknown_tool", f"there is no tool {call.name[:64]!r}; there are: {known}")
    try:
        arguments = read_arguments(call.arguments_json, tool.spec)
    except ArgumentsError as error:
        return _error("invalid_arguments", str(error))
    if arguments.mended:
        log = structlog.get_logger("tools")
        log.info("arguments mended", tool=call.name, run_id=context.run_id, what=arguments.mended)
    if bounds.seconds <= 0:
        return _error("timeout", f"no time is left for {tool.spec.name}; it was not executed")
    given: list[ToolResult] = []

    async def give() -> None:
        given.append(
            await _run(tool, arguments.values, context, bounds=bounds, result_id=result_id)
        )

    task = tasks.start(f"tool {tool.spec.name}", give())
    try:
        await asyncio.wait({task}, timeout=bounds.seconds)
        if given:
            return given[0]
        await _stop(task, tool.spec, context)
    finally:
        task.cancel()
    return _late(tool.spec, bounds)


async def _stop(task: asyncio.Task[None], spec: ToolSpec, context: ToolContext) -> None:
    """Tell a tool to stop; one that does not is left to itself."""
    task.cancel()
    _, running = await asyncio.wait({task}, timeout=STOP_GRACE)
    if running:
        log = structlog.get_logger("tools")
        log.error("tool does not stop", tool=spec.name, run_id=context.run_id)


async def _run(
    tool: Tool,
    arguments: Mapping[str, Json],
    context: ToolContext,
    *,
    bounds: ToolBounds,
    result_id: str,
) -> ToolResult:
    log = structlog.get_logger("tools")
    try:
        return await _given(tool, arguments, context, bounds=bounds, result_id=result_id)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        log.exception("tool failed", tool=tool.spec.name, run_id=context.run_id)
    except BaseException:  # a tool may raise anything; the worker goes on
        log.exception("tool failed", tool=tool.spec.name, run_id=context.run_id)
    return _error("failed", f"{tool.spec.name} failed; this is a fault of the tool")


async def _given(
    tool: Tool,
    arguments: Mapping[str, Json],
    context: ToolContext,
    *,
    bounds: ToolBounds,
    result_id: str,
) -> ToolResult:
    """What the tool gives, or says is wrong."""
    try:
        result = await tool.run(arguments, context)
        check_sound(result)
        return _shown(result, bounds, result_id)
    except ToolError as error:
        told = _error(error.word, error.message, advice=error.advice)
        return _shown(told, bounds)
    except ServiceError as error:
        return _shown(_error(error.reason.lower(), error.message), bounds)


def _late(spec: ToolSpec, bounds: ToolBounds) -> ToolResult:
    maybe = "" if spec.idempotent else "; it may or may not have had its effect"
    return _error("timeout", f"{spec.name} took longer than {bounds.seconds:g} s{maybe}")


def _error(word: str, text: str, *, advice: str = "") -> ToolResult:
    return ToolResult(f"Error: {text.removesuffix('.')}.{advice}", error=word)


def _shown(result: ToolResult, bounds: ToolBounds, result_id: str = "") -> ToolResult:
    """The result as a model reads it: not too long, and as a quotation if it is from outside."""
    if not (result.source or result.note) and len(result.text) <= bounds.result_chars:
        return result
    room = bounds.result_chars - (QUOTATION_CHARS if result.source else 0)
    if len(result.text) + len(result.note) > room:
        result = _cut(result, room, result_id)
    text = quoted(result.text, result.source) if result.source else result.text
    note = f"\n[{result.note}]" if result.note else ""
    return replace(result, text=text + note, source="", note="")


def _cut(result: ToolResult, room: int, result_id: str) -> ToolResult:
    """The beginning of a result; the whole is kept where it can be read on."""
    full = len(result.text)
    end = end_of_piece(result.text, 0, max(room - len(f"\n[{_note(full, full, result_id)}]"), 1))
    kept = Whole(result.text[:MAX_TEXT_BYTES], full, result.source) if result_id else None
    note = _note(full, end, result_id)
    return replace(result, text=result.text[:end], note=note, whole=kept)


def _note(full: int, end: int, result_id: str) -> str:
    """What is said at a cut."""
    note = f"Cut here: the full result has {full} characters."
    return f"{note} {how_to_go_on(result_id, end)}" if result_id else note
