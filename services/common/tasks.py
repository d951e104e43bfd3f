"""Tasks that have an owner.

`background_tasks` is for tasks that run beside a block:

    async with background_tasks() as tasks:
        tasks.start("heartbeat", beat())
        await serve()

A task that fails is logged and ends its owner's block with that very error, so that the process
stops rather than limps. When the block ends, its remaining tasks are cancelled and awaited.

`task_group` is for tasks that the block waits for, such as calls made at the same time.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import structlog


class BackgroundTasks:
    """The tasks of one block; made by `background_tasks`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` beside the block.

        Args:
            name: what the log calls it.
            work: runs until it is done or cancelled.

        Returns:
            The task, by which it can be cancelled on its own.
        """
        task = self._group.create_task(_logged(name, work), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # One that is cancelled before it began would count as never awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def cancel(self) -> None:
        """Cancel all tasks; they are awaited at the end of the block."""
        for task in self._running:
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """A block whose tasks end with it, and which ends when one of them fails.

    Raises:
        Exception: what the block or its first failing task raised; an ExceptionGroup only if
            several failed before any could be cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = BackgroundTasks(group)
            try:
                yield tasks
            finally:
                tasks.cancel()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from failures.exceptions[0].__cause__


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup` that fails with the first error itself, not with a group of errors.

    Raises:
        Exception: what the block or its first failing task raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        first = _first(failures)
        raise first from first.__cause__


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _logged(name: str, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:
        structlog.get_logger("tasks").exception("task failed", task=name)
        raise
