"""Keeps a session: its loss is noticed while nobody uses it, and a lost one is made again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import NoReturn, TypeVar

import structlog

from services.common.backoff import Backoff
from services.common.errors import UnavailableError
from services.common.tasks import task_group

SessionT = TypeVar("SessionT")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_REMIND = 60.0


async def keep_session(
    name: str,
    opened: Callable[[], AbstractAsyncContextManager[SessionT]],
    use: Callable[[SessionT], Awaitable[None]],
) -> None:
    """Run `use` on a session, and again on a new one after every loss, until cancelled.

    The pauses between attempts grow and are jittered; after a session that lasted they start over.
    The log tells of the first loss, then once a minute, and once of a session that lasts again.

    Args:
        name: what the log calls it.
        opened: makes a session for as long as its block lasts; raises UnavailableError where that
            is not possible.
        use: works with the session, and raises UnavailableError when it is lost.

    Raises:
        Exception: whatever else `opened` or `use` raises.
    """
    outage = _Outage(name)
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while True:
        try:
            async with opened() as session:
                with outage.over_if_it_lasts(backoff):
                    await use(session)
        except UnavailableError as error:
            outage.tell(error)
        await asyncio.sleep(backoff.pause())


class _Outage:
    """What the log is told of the time without a session, however many attempts it takes."""

    def __init__(self, name: str) -> None:
        self._log = structlog.get_logger("session").bind(session=name)
        self._loop = asyncio.get_running_loop()
        self._was_open = False
        self._silent_until: float | None = None

    def tell(self, error: UnavailableError) -> None:
        """Note a failure, in the log unless it was told a short while ago."""
        if self._silent_until is None or self._loop.time() >= self._silent_until:
            self._silent_until = self._loop.time() + _REMIND
            event = "session lost" if self._was_open else "session cannot be opened"
            self._log.warning(event, cause=repr(error.__cause__))

    @contextmanager
    def over_if_it_lasts(self, backoff: Backoff) -> Iterator[None]:
        """To be held while a session is open; one that is lost at once ends no outage."""
        self._was_open = True
        lasts = self._loop.call_later(_LONGEST_PAUSE, self._end, backoff)
        try:
            yield
        finally:
            lasts.cancel()

    def _end(self, backoff: Backoff) -> None:
        backoff.reset()
        if self._silent_until is not None:
            self._silent_until = None
            self._log.info("session is back")


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
