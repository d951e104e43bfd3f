"""Shows a session as it goes on: its messages after a sequence, then everything that follows.

Subscribe, read, then wait and read again: the rows are the truth and a hint only makes the next
look come sooner, so at the border between history and live nothing is lost or told twice. Between
two looks nothing of the database is held, however slow the reader is.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from services.agent.domain.errors import DrainingError, SequenceAheadError
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, Session, SessionId
from services.agent.domain.run_models import Run, RunState
from services.agent.domain.stores import MessageStore, RunStore, SessionStore
from services.common.clock import Clock
from services.common.errors import NotFoundError
from services.common.hints import Listener, Subscription
from services.common.identity import Identity
from services.common.paging import Page

_PAGE_MESSAGES = 100
_PAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says that the stream is alive.

    Attributes:
        time: when it was sent.
    """

    time: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a watcher is told.

    Attributes:
        what: the next message, a run whose state has changed, or a heartbeat.
        through: the sequence up to which every message has been told.
    """

    what: Message | Run | Heartbeat
    through: int


class Watch:
    """Watches sessions on behalf of their users."""

    def __init__(
        self,
        sessions: SessionStore,
        *,
        messages: MessageStore,
        runs: RunStore,
        listener: Listener,
        clock: Clock,
        draining: asyncio.Event,
        heartbeat: float = 15.0,
    ) -> None:
        """Watches on the stores of one database.

        Args:
            sessions: where watching begins.
            messages: what was said.
            runs: what is being worked on.
            listener: hints at news, by session id.
            clock: the time of heartbeats.
            draining: set once this replica is about to stop.
            heartbeat: seconds of silence after which a heartbeat is sent.
        """
        self._sessions = sessions
        self._messages = messages
        self._runs = runs
        self._listener = listener
        self._clock = clock
        self._draining = draining
        self._heartbeat = heartbeat
        self._waiting: set[Subscription] = set()

    async def watch(
        self, identity: Identity, session_id: SessionId, *, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """The session's events, for ever.

        Args:
            identity: the user.
            session_id: the session.
            after: the last sequence already seen; 0 for all, None for only what is new. Whoever
                resumes is told how the newest run stands, as its end may have been missed.

        Raises:
            NotFoundError: the user has no such session, or has deleted it.
            SequenceAheadError: there is no such sequence yet.
            DrainingError: this replica is about to stop.
        """
        clock = asyncio.get_running_loop().time
        with self._listener.subscribe(session_id) as news:
            position = await self._begin(identity, session_id, after)
            silent_since = clock()
            while True:
                for event in await self._look(identity, session_id, position):
                    yield event
                    silent_since = clock()
                if self._draining.is_set():
                    raise DrainingError.now()
                if not position.behind:
                    await self._wait(news, silent_since + self._heartbeat - clock())
                if clock() >= silent_since + self._heartbeat:
                    yield Event(Heartbeat(self._clock()), position.sent)
                    silent_since = clock()

    async def end_when_draining(self) -> None:
        """Runs beside the watches: once this replica drains, none of them waits any longer."""
        await self._draining.wait()
        for news in self._waiting:
            news.wake()

    async def _begin(
        self, identity: Identity, session_id: SessionId, after: int | None
    ) -> "_Position":
        session = await self._sessions.get(identity, session_id)
        if after is None:
            return _Position(session.last_sequence, await self._active_turn(identity, session))
        if after > session.last_sequence:
            raise SequenceAheadError.of(session.last_sequence)
        return _Position(after, await self._newest_turn(identity, session))

    async def _active_turn(self, identity: Identity, session: Session) -> int:
        """The turn of the run that is being worked on, else the one to come."""
        if session.active_run_id is None:
            return session.last_sequence + 1
        try:
            return (await self._runs.get(identity, session.active_run_id)).turn
        except NotFoundError:
            # Runs go only with their session, which is what the caller asked for.
            await self._sessions.get(identity, session.id)
            raise

    async def _newest_turn(self, identity: Identity, session: Session) -> int:
        """The turn of the run that is being worked on, else the last one's."""
        newest = await self._runs.list(identity, session.id, Page(size=1))
        if session.active_run_id is None and newest:
            return newest[0].turn
        return await self._active_turn(identity, session)

    async def _look(
        self, identity: Identity, session_id: SessionId, position: "_Position"
    ) -> list[Event]:
        """What is new, a page at most; runs only once all messages before them are told."""
        pulse = await self._runs.pulse(identity, session_id, from_turn=position.from_turn)
        events = []
        if position.sent < pulse.last_sequence:
            page = await self._messages.after(
                identity, session_id, position.sent, most=_PAGE_MESSAGES, max_bytes=_PAGE_BYTES
            )
            events = [Event(message, message.sequence) for message in page.items]
            position.sent = page.items[-1].sequence if page.items else position.sent
            position.behind = page.more
        if not position.behind:
            events += [Event(run, position.sent) for run in position.changed(pulse.runs)]
        return events

    async def _wait(self, news: Subscription, seconds: float) -> None:
        self._waiting.add(news)
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.discard(news)


@dataclass(slots=True)
class _Position:
    """How far a watcher is.

    Attributes:
        sent: the last sequence told.
        from_turn: runs before this turn have ended, and that was told or is long past.
        behind: there are more messages to be read at once.
        told: how the runs from that turn on stood when they were last told.
    """

    sent: int
    from_turn: int
    behind: bool = False
    told: dict[RunId, tuple[RunState, bool]] = field(default_factory=dict)

    def changed(self, runs: Sequence[Run]) -> list[Run]:
        """Those of the runs, all from `from_turn` on, whose state was not told yet; now it is."""
        changed = []
        for run in runs:
            state = (run.state, run.cancel_requested)
            if self.told.get(run.id) != state:
                self.told[run.id] = state
                changed.append(run)
        for run in runs:
            if not run.state.final:
                break
            self.from_turn = run.turn + 1
            self.told.pop(run.id)
        return changed
