"""The watches of one caller: of one session, or of very many.

Subscribe, read, then wait and read again: the rows are the truth and a hint only makes the next
look come sooner, so at the border between history and live nothing is lost or told twice. What has
news is read together, and a session once for all who are equally far. Nothing is read ahead: the
caller takes what is next when it has told the last, and in between nothing of the database is held.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.watch.news import Look, NewsStore, Pulse, Read
from services.agent.domain.watch.poll import WatchPoll
from services.agent.domain.watch.position import News, Position
from services.agent.domain.watch.session import Group, WatchedSession
from services.common.errors import ServiceError
from services.common.hints import Listener
from services.common.identity import Identity
from services.common.paging import Listing

PAGE_MESSAGES = 100
PAGE_BYTES = 1024 * 1024

_MOST_SESSIONS = 200
_MOST_READS = 16

_Pulses: TypeAlias = Mapping[Look, Pulse | None]
_Pages: TypeAlias = Mapping[Read, Listing[Message]]


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that watches are told.

    Attributes:
        watch_ids: the watches.
        what: the news, or why they end.
        through: the sequence up to which every message has been told.
    """

    watch_ids: Sequence[int]
    what: News | ServiceError
    through: int


class Watching:
    """The watches of one caller; made by `Watch.watching`."""

    def __init__(self, store: NewsStore, listener: Listener, poll: WatchPoll) -> None:
        """No watches yet.

        Args:
            store: reads the sessions.
            listener: hints at news, by session id.
            poll: looks for news that no hint tells of.
        """
        self._store = store
        self._listener = listener
        self._poll = poll
        self._sessions: dict[tuple[Identity, SessionId], WatchedSession] = {}
        self._groups: dict[int, Group] = {}
        self._dirty: dict[WatchedSession, None] = {}
        self._refused: list[Told] = []
        self._news = asyncio.Event()

    def begin(
        self,
        watch_id: int,
        identity: Identity,
        session_id: SessionId,
        *,
        after: int | None,
        open_runs: Iterable[RunId] = (),
    ) -> None:
        """Watch a session.

        Args:
            watch_id: names the watch; not used before.
            identity: the user.
            session_id: the session.
            after: the last sequence already seen; 0 for all, None for only what is new.
            open_runs: runs whose end is not known yet; how they stand is told in any case.
        """
        session = self._sessions.get((identity, session_id)) or self._add(identity, session_id)
        position = Position(identity, session_id, after=after, open_runs=open_runs)
        self._groups[watch_id] = session.join(position, watch_id)
        session.has_news()

    def end(self, watch_id: int) -> None:
        """Watch it no more; nothing happens if that has ended already."""
        group = self._groups.pop(watch_id, None)
        if group is not None and group.session.leave(group, watch_id):
            self._remove(group.session)

    def refuse(self, watch_id: int, error: ServiceError) -> None:
        """Tell that a watch cannot begin."""
        self._refused.append(Told((watch_id,), error, 0))
        self.wake()

    def close(self) -> None:
        """End all watches."""
        for session in list(self._sessions.values()):
            self._remove(session)

    def wake(self) -> None:
        """Let the present `next` return, or else the next one."""
        self._news.set()

    async def next(self, *, within: float | None = None) -> Sequence[Told]:
        """What is to be told next; what was returned counts as told.

        Nothing, if there was nothing for so many seconds, or after `wake`.

        Raises:
            ServiceError: the database cannot be read now; no watch has moved on.
        """
        while True:
            self._news.clear()
            while self._dirty or self._refused:
                refused, self._refused = self._refused, []
                told = [*refused, *await self._look_around()]
                if told:
                    return told
            try:
                async with asyncio.timeout(within):
                    await self._news.wait()
            except TimeoutError:
                return ()
            if not self._dirty and not self._refused:
                return ()

    def _add(self, identity: Identity, session_id: SessionId) -> WatchedSession:
        def has_news() -> None:
            self._dirty[session] = None
            self._news.set()

        session = WatchedSession(identity, session_id, has_news)
        session.hints.enter_context(self._listener.on_hint(session_id, has_news))
        self._sessions[session.key] = session
        self._poll.add(session)
        return session

    def _remove(self, session: WatchedSession) -> None:
        session.hints.close()
        del self._sessions[session.key]
        self._poll.discard(session)
        self._dirty.pop(session, None)

    async def _look_around(self) -> Sequence[Told]:
        """Look at some of the sessions that may have news."""
        sessions = list(islice(self._dirty, _MOST_SESSIONS))
        for session in sessions:
            del self._dirty[session]
        try:
            looks = {each: each.position.look for session in sessions for each in session.groups}
            pulses = await self._pulses(set(looks.values()))
            reads, told = _begun(looks, pulses)
            pages = await self._pages({read for read in reads.values() if read is not None})
        except BaseException:
            for session in sessions:
                session.has_news()
            raise
        for ended in told:
            for watch_id in ended.watch_ids:
                self.end(watch_id)
        for group, read in reads.items():
            told += _told(group, pulses[looks[group]], read, pages)
        for session in sessions:
            self._groups.update(session.merge())
        return told

    async def _pulses(self, looks: Collection[Look]) -> _Pulses:
        found = await self._store.pulses(list(looks)) if looks else ()
        return dict(zip(looks, found, strict=True))

    async def _pages(self, reads: Collection[Read]) -> _Pages:
        """The pages of some of these reads; the others are for later."""
        now = list(islice(reads, _MOST_READS))
        if not now:
            return {}
        pages = await self._store.messages(now, most=PAGE_MESSAGES, max_bytes=PAGE_BYTES)
        return dict(zip(now, pages, strict=True))


def _begun(
    looks: Mapping[Group, Look], pulses: _Pulses
) -> tuple[dict[Group, Read | None], list[Told]]:
    """What each group has to read now, if anything; and why some have to end."""
    reads: dict[Group, Read | None] = {}
    ended: list[Told] = []
    for group, look in looks.items():
        try:
            reads[group] = group.position.begin(pulses[look])
        except ServiceError as error:
            ended.append(Told(tuple(group.watch_ids), error, 0))
    return reads, ended


def _told(group: Group, pulse: Pulse | None, read: Read | None, pages: _Pages) -> Iterator[Told]:
    """What a group is told now; what is left, the session is to be looked at for again."""
    if pulse is None or not group.watch_ids:
        return
    if read is None or read in pages:
        page = pages[read] if read else None
        watch_ids = tuple(group.watch_ids)
        for news, through in group.position.advance(pulse, page):
            yield Told(watch_ids, news, through)
    if group.position.behind:
        group.session.has_news()
