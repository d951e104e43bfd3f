"""One poll for all watched sessions of a process, which covers hints that are lost.

Each session on its own would be a query a second for each, however quiet it is. Together they are
one, and only those that have moved since are looked at.
"""

from dataclasses import dataclass, field

import structlog

from services.agent.domain.models import SessionId
from services.agent.domain.watch.news import Mark, NewsStore
from services.agent.domain.watch.session import WatchedSession
from services.common.errors import ServiceError
from services.common.hints import Listener
from services.common.identity import Identity

_KEY = "watches"
_MOST_AT_ONCE = 500


@dataclass(slots=True)
class _Polled:
    """A session that one or more callers watch; its mark is as the last poll found it."""

    mark: str | None = None
    watched: set[WatchedSession] = field(default_factory=set)


class WatchPoll:
    """Looks at all watched sessions now and then."""

    def __init__(self, store: NewsStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._sessions: dict[tuple[Identity, SessionId], _Polled] = {}
        self._log = structlog.get_logger("watch")

    def add(self, session: WatchedSession) -> None:
        """Look at a session from now on."""
        self._sessions.setdefault(session.key, _Polled()).watched.add(session)

    def discard(self, session: WatchedSession) -> None:
        """Look at it no more."""
        polled = self._sessions.get(session.key)
        if polled is not None:
            polled.watched.discard(session)
            if not polled.watched:
                del self._sessions[session.key]

    async def run(self) -> None:
        """Poll until cancelled."""
        with self._listener.subscribe(_KEY) as news:
            while True:
                await news.wait()
                try:
                    await self._poll()
                except ServiceError as error:  # those who watch meet it themselves
                    self._log.debug("poll failed", cause=error.message)

    async def _poll(self) -> None:
        keys = list(self._sessions)
        for first in range(0, len(keys), _MOST_AT_ONCE):
            marks = [
                Mark(*key, polled.mark)
                for key in keys[first : first + _MOST_AT_ONCE]
                if (polled := self._sessions.get(key)) is not None
            ]
            for moved in await self._store.moved(marks):
                self._tell(moved)

    def _tell(self, moved: Mark) -> None:
        polled = self._sessions.get((moved.identity, moved.session_id))
        if polled is not None:
            polled.mark = moved.mark
            for session in polled.watched:
                session.has_news()
