"""Calls of a reply, side by side and in order."""

import asyncio
from collections.abc import Sequence

import pytest

from services.agent.domain.chat import ToolResult
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.calls import TOOLS_AT_ONCE, Answered, execute_in_order
from services.agent.domain.turn.steps import PlannedCall


def planned(*names: str) -> list[PlannedCall]:
    return [PlannedCall(ToolCall(ToolCallId(name), "look", "{}")) for name in names]


class Record:
    """What was recorded, call by call, and which results came at the end."""

    def __init__(self) -> None:
        self.steps: list[list[str]] = []
        self.last: list[bool] = []

    async def __call__(self, given: Sequence[Answered], last: bool) -> None:
        assert all(result.text == call.id for call, result in given)
        self.steps.append([call.id for call, _ in given])
        self.last.append(last)


class TestExecuteInOrder:
    async def test_a_result_waits_for_those_before_it(self) -> None:
        record, first = Record(), asyncio.Event()

        async def execute(each: PlannedCall) -> ToolResult:
            if each.call.id == "a":
                await first.wait()
            else:
                first.set()
            return ToolResult(each.call.id)

        results = await execute_in_order(planned("a", "b", "c"), execute, record)

        assert [each.text for each in results] == ["a", "b", "c"]
        assert [each for step in record.steps for each in step] == ["a", "b", "c"]
        assert record.last == [False] * (len(record.last) - 1) + [True]

    async def test_so_many_run_at_once(self) -> None:
        running = most = 0

        async def execute(each: PlannedCall) -> ToolResult:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return ToolResult(each.call.id)

        names = [str(number) for number in range(3 * TOOLS_AT_ONCE)]
        await execute_in_order(planned(*names), execute, Record())

        assert most == TOOLS_AT_ONCE

    async def test_one_alone_needs_no_task(self) -> None:
        record, asking = Record(), asyncio.current_task()

        async def execute(each: PlannedCall) -> ToolResult:
            assert asyncio.current_task() is asking
            return ToolResult(each.call.id)

        await execute_in_order(planned("a"), execute, record)

        assert (record.steps, record.last) == ([["a"]], [True])

    async def test_without_calls_nothing_is_recorded(self) -> None:
        async def execute(each: PlannedCall) -> ToolResult:
            raise AssertionError

        record = Record()

        assert await execute_in_order([], execute, record) == []
        assert record.steps == []

    @pytest.mark.parametrize("names", [("a",), ("a", "b")])
    async def test_a_failure_ends_the_others_and_is_told(self, names: tuple[str, ...]) -> None:
        ended = list[str]()

        async def execute(each: PlannedCall) -> ToolResult:
            if each.call.id == names[0]:
                await asyncio.sleep(0)
                raise LookupError(each.call.id)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(each.call.id)
            raise AssertionError

        with pytest.raises(LookupError, match="a"):
            await execute_in_order(planned(*names), execute, Record())

        assert ended == list(names[1:])
