"""Executes the calls of one reply side by side, and gives their results on in the calls' order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Final, TypeAlias

from services.agent.domain.chat import ToolResult
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.steps import PlannedCall
from services.common.tasks import background_tasks

TOOLS_AT_ONCE: Final = 8
"""How many calls of one reply run side by side."""

Answered: TypeAlias = tuple[ToolCall, ToolResult]


async def execute_in_order(
    calls: Sequence[PlannedCall],
    execute: Callable[[PlannedCall], Awaitable[ToolResult]],
    record: Callable[[Sequence[Answered], bool], Awaitable[None]],
) -> list[ToolResult]:
    """The results of all calls, in order; each is recorded as soon as those before it are there.

    Args:
        calls: what to execute, each with an id of its own.
        execute: gives a call its one result.
        record: takes the results that come next, and whether they are the last ones.

    Raises:
        Exception: what the first failing `execute`, or `record`, raised; the other calls are ended.
    """
    if len(calls) == 1:  # what most replies ask for; a task for it costs more than many a tool
        [planned] = calls
        only = await execute(planned)
        await record([(planned.call, only)], True)
        return [only]
    results: dict[ToolCallId, ToolResult] = {}
    places = asyncio.Semaphore(TOOLS_AT_ONCE)

    async def execute_one(planned: PlannedCall) -> None:
        async with places:
            results[planned.call.id] = await execute(planned)

    async with background_tasks() as tasks:
        waiting = [(each.call, tasks.start(each.call.name, execute_one(each))) for each in calls]
        while waiting:
            await waiting[0][1]
            ready = [call for call, _ in takewhile(lambda pair: pair[0].id in results, waiting)]
            waiting = waiting[len(ready) :]
            await record([(call, results[call.id]) for call in ready], not waiting)
    return [results[each.call.id] for each in calls]
