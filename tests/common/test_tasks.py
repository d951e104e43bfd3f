"""Tasks and their owners."""

import asyncio
from collections.abc import Coroutine

import pytest
import structlog

from services.common.tasks import background_tasks, task_group


class BrokenError(Exception):
    """What a failing task raises here."""


async def _forever() -> None:
    await asyncio.Event().wait()


async def _fail(message: str = "") -> None:
    raise BrokenError(message)


async def _own(*works: Coroutine[None, None, None]) -> None:
    """Own the tasks `work 0`, `work 1` …, for ever."""
    async with asyncio.timeout(5), background_tasks() as tasks:
        for number, work in enumerate(works):
            tasks.start(f"work {number}", work)
        await _forever()


class TestBackgroundTasks:
    async def test_what_still_runs_at_the_end_is_cancelled_and_awaited(self) -> None:
        steps = []
        started = asyncio.Event()

        async def work() -> None:
            try:
                started.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                steps.append("cleaned up")

        async with background_tasks() as tasks:
            tasks.start("work", work())
            await asyncio.wait_for(started.wait(), 5)
            steps.append("block left")

        assert steps == ["block left", "cleaned up"]

    async def test_a_failure_ends_the_block_with_that_error(self) -> None:
        with pytest.raises(BrokenError):
            await _own(_fail())

    async def test_a_failure_cancels_the_other_tasks(self) -> None:
        ended = []

        async def other() -> None:
            try:
                await _forever()
            finally:
                ended.append("other")

        with pytest.raises(BrokenError):
            await _own(other(), other(), _fail())
        assert ended == ["other", "other"]

    async def test_a_failure_is_logged_with_the_tasks_name(self) -> None:
        with structlog.testing.capture_logs() as logs, pytest.raises(BrokenError):
            await _own(_forever(), _fail())

        assert [(log["event"], log["task"]) for log in logs] == [("task failed", "work 1")]

    async def test_the_blocks_own_error_comes_out_unwrapped(self) -> None:
        async def fail_as_owner() -> None:
            async with background_tasks() as tasks:
                tasks.start("other", _forever())
                raise BrokenError

        with pytest.raises(BrokenError):
            await fail_as_owner()

    async def test_several_failures_come_out_together(self) -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await _own(_fail(), _fail())

        assert [type(error) for error in caught.value.exceptions] == [BrokenError] * 2

    async def test_cancellation_from_outside_passes_through(self) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            inside.set()
            await _forever()

        owner = asyncio.create_task(_own(work()))
        await asyncio.wait_for(inside.wait(), 5)
        owner.cancel()

        with pytest.raises(asyncio.CancelledError):
            await owner

    async def test_a_task_that_is_done_or_cancelled_alone_leaves_the_rest_be(self) -> None:
        async def work() -> None:
            return

        async with background_tasks() as tasks:
            await asyncio.wait_for(tasks.start("short", work()), 5)
            alone = tasks.start("alone", _forever())
            alone.cancel()
            await asyncio.wait({alone}, timeout=5)
            rest = tasks.start("rest", _forever())
            await asyncio.sleep(0)

            assert alone.cancelled()
            assert not rest.done()


class TestTaskGroup:
    async def test_a_failing_task_ends_the_block_with_its_error(self) -> None:
        ended = []

        async def other() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("other")

        async def block() -> None:
            async with task_group() as group:
                group.create_task(other())
                group.create_task(_fail())
                await asyncio.Event().wait()

        with pytest.raises(BrokenError):
            await block()
        assert ended == ["other"]

    async def test_of_groups_within_groups_the_first_error_comes_out(self) -> None:
        async def inner() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(_fail("first"))
                group.create_task(_fail("second"))

        async def outer() -> None:
            async with task_group() as group:
                group.create_task(inner())

        with pytest.raises(BrokenError, match=r"^first$") as caught:
            await outer()
        assert caught.value.__cause__ is None

    async def test_the_blocks_own_error_is_itself(self) -> None:
        async def block() -> None:
            async with task_group():
                raise BrokenError("own")

        with pytest.raises(BrokenError, match=r"^own$"):
            await block()

    async def test_a_cancelled_task_is_no_failure(self) -> None:
        async with task_group() as group:
            group.create_task(asyncio.Event().wait()).cancel()

    async def test_cancellation_passes_through(self) -> None:
        async def block() -> None:
            async with task_group() as group:
                group.create_task(asyncio.Event().wait())
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
