"""Keeps a session: its loss is noticed while nobody uses it, and a lost one is made again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn, TypeVar

import structlog

from services.common.backoff import Backoff
from services.common.errors import UnavailableError
from services.common.tasks import task_group

SessionT = TypeVar("SessionT")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


async def keep_session(
    name: str,
    opened: Callable[[], AbstractAsyncContextManager[SessionT]],
    use: Callable[[SessionT], Awaitable[None]],
) -> None:
    """Run `use` on a session, and again on a new one after every loss, until cancelled.

    The pauses between attempts grow and are jittered; after a session that lasted they start over.

    Args:
        name: what the log calls it.
        opened: makes a session for as long as its block lasts; raises UnavailableError where that
            is not possible.
        use: works with the session, and raises UnavailableError when it is lost.

    Raises:
        Exception: whatever else `opened` or `use` raises.
    """
    log = structlog.get_logger("session").bind(session=name)
    clock = asyncio.get_running_loop().time
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while True:
        began = clock()
        try:
            async with opened() as session:
                await use(session)
        except UnavailableError as error:
            log.warning("session lost", cause=repr(error.__cause__))
        if clock() - began > _LONGEST_PAUSE:
            backoff.reset()
        await asyncio.sleep(backoff.pause())


@asynccontextmanager
async def watched_by(*watches: Coroutine[None, None, NoReturn]) -> AsyncIterator[None]:
    """A block with watches beside it, which raise when something is lost that it needs.

    Raises:
        Exception: what the block or the first of the watches raised; either ends the others.
    """
    async with task_group() as group:
        tasks = [group.create_task(watch) for watch in watches]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
