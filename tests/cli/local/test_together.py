"""Task groups whose failures can be reported."""

import asyncio

import pytest

from cli.local.errors import StartError
from cli.local.together import together


async def fail(error: Exception) -> None:
    raise error


class TestTogether:
    async def test_a_failing_task_ends_the_block_with_its_error(self) -> None:
        ended = []

        async def other() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("other")

        async def block() -> None:
            async with together() as group:
                group.create_task(other())
                group.create_task(fail(StartError("no")))
                await asyncio.Event().wait()

        with pytest.raises(StartError, match=r"^no$"):
            await block()
        assert ended == ["other"]

    async def test_of_groups_within_groups_the_first_error_comes_out(self) -> None:
        async def inner() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(StartError("first")))
                group.create_task(fail(StartError("second")))

        async def outer() -> None:
            async with together() as group:
                group.create_task(inner())

        with pytest.raises(StartError, match=r"^first$") as caught:
            await outer()
        assert caught.value.__cause__ is None

    async def test_the_blocks_own_error_is_itself(self) -> None:
        async def block() -> None:
            async with together():
                raise StartError("own")

        with pytest.raises(StartError, match=r"^own$"):
            await block()

    async def test_a_cancelled_task_is_no_failure(self) -> None:
        async with together() as group:
            group.create_task(asyncio.Event().wait()).cancel()

    async def test_cancellation_passes_through(self) -> None:
        async def block() -> None:
            async with together() as group:
                group.create_task(asyncio.Event().wait())
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
