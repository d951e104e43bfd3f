"""Shows sessions as they go on: their messages after a sequence, then everything that follows."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from services.agent.domain.messages import Message
from services.agent.domain.models import SessionId
from services.agent.domain.run_models import Run
from services.agent.domain.watch.news import NewsStore
from services.agent.domain.watch.poll import WatchPoll
from services.agent.domain.watch.position import CaughtUp
from services.agent.domain.watch.watching import Watching
from services.common.clock import Clock
from services.common.errors import ServiceError
from services.common.hints import Listener
from services.common.identity import Identity
from services.common.tasks import task_group


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says that the stream is alive.

    Attributes:
        time: when it was sent.
    """

    time: datetime


@dataclass(frozen=True, slots=True)
class GoAway:
    """Says that this replica is about to stop; another will go on."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a watcher is told.

    Attributes:
        what: the next message, a run whose state has changed, or a sign of life.
        through: the sequence up to which every message has been told.
    """

    what: Message | Run | Heartbeat | GoAway
    through: int


class Watch:
    """Watches sessions on behalf of their users; `keep` has to run beside it."""

    def __init__(
        self,
        store: NewsStore,
        *,
        listener: Listener,
        clock: Clock,
        draining: asyncio.Event,
        heartbeat: float = 15.0,
    ) -> None:
        """Watches on the stores of one database.

        Args:
            store: reads the sessions.
            listener: hints at news, by session id.
            clock: the time of heartbeats.
            draining: set once this replica is about to stop.
            heartbeat: seconds of silence after which a heartbeat is sent.
        """
        self._store = store
        self._listener = listener
        self._clock = clock
        self._draining = draining
        self._heartbeat = heartbeat
        self._poll = WatchPoll(store, listener)
        self._callers: set[Watching] = set()

    @property
    def draining(self) -> bool:
        """Whether this replica is about to stop."""
        return self._draining.is_set()

    @contextmanager
    def watching(self) -> Iterator[Watching]:
        """Many watches of one caller, until the end of the block."""
        watching = Watching(self._store, self._listener, self._poll)
        self._callers.add(watching)
        try:
            yield watching
        finally:
            self._callers.discard(watching)
            watching.close()

    async def keep(self) -> None:
        """Runs beside the watches: polls for all of them, and wakes them when draining."""
        async with task_group() as group:
            polling = group.create_task(self._poll.run())
            await self._draining.wait()
            polling.cancel()
        for watching in self._callers:
            watching.wake()

    async def watch(
        self, identity: Identity, session_id: SessionId, *, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """The session's events, until this replica is about to stop; the last one is GoAway then.

        Args:
            identity: the user.
            session_id: the session.
            after: the last sequence already seen; 0 for all, None for only what is new. Whoever
                resumes is told how the newest run stands, as its end may have been missed.

        Raises:
            NotFoundError: the user has no such session, or has deleted it.
            SequenceAheadError: there is no such sequence yet.
        """
        clock = asyncio.get_running_loop().time
        with self.watching() as watching:
            watching.begin(0, identity, session_id, after=after)
            through, silent_since = after or 0, clock()
            while True:
                for told in await watching.next(within=silent_since + self._heartbeat - clock()):
                    if isinstance(told.what, ServiceError):
                        raise told.what
                    through = told.through
                    if not isinstance(told.what, CaughtUp):
                        yield Event(told.what, through)
                        silent_since = clock()
                if self.draining:
                    yield Event(GoAway(), through)
                    return
                if clock() >= silent_since + self._heartbeat:
                    yield Event(Heartbeat(self._clock()), through)
                    silent_since = clock()
