"""Background tasks that have an owner.

    async with background_tasks() as tasks:
        tasks.start("heartbeat", beat())
        await serve()

A task that fails is logged and ends its owner's block with that very error, so that the process
stops rather than limps; at the block's end the remaining tasks are cancelled and awaited.
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
        """Let `work` run beside the block.

        Args:
            name: what the log calls it.
            work: runs until it is done or cancelled; may be cancelled alone by the returned task.
        """
        task = self._group.create_task(_logged(name, work), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began, it is unawaited
        return task

    def cancel(self) -> None:
        """Ask all to end; the block's end awaits them."""
        for task in self._running:
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """A block whose tasks end with it, and which ends when one of them fails.

    Raises:
        Exception: what the block or its first failing task raised; an ExceptionGroup of all only if
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


async def _logged(name: str, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:
        structlog.get_logger("tasks").exception("task failed", task=name)
        raise
