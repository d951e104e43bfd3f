"""What one client has been told of a session, and what waits to be sent to it."""

import asyncio
import time
from typing import TypeAlias, assert_never

from services.common.identity import Identity
from services.gateway.domain.messages import Event, Message, RunUpdate, Told
from services.gateway.domain.models import RunId, SessionId
from services.gateway.domain.ports import Place

Sendable: TypeAlias = tuple[Event, int]
"""An event, and the sequence up to which every message has been sent with it."""

_MOST_EVENTS = 100
_MOST_BYTES = 1024 * 1024
_MOST_RUNS = 64


class Follower:
    """A client of one session; satisfies `Watched`.

    What it is told waits here until it is sent, within bounds: what would exceed them is refused,
    and can be told again later. So a slow client costs no more memory than a fast one.

    There are as many of these as there are open streams, so nothing is kept that is not needed.

    Attributes:
        identity: on whose behalf.
        session_id: the session.
        lagging: whether something was refused, so that its watch has ended.
        waiting_since: when it began to wait for events; None while it is being sent some.
    """

    __slots__ = (
        "_after",
        "_bytes",
        "_failure",
        "_news",
        "_pending",
        "_runs",
        "identity",
        "lagging",
        "session_id",
        "waiting_since",
    )

    def __init__(self, identity: Identity, session_id: SessionId, after: int) -> None:
        self.identity = identity
        self.session_id = session_id
        self.lagging = False
        self.waiting_since: float | None = None
        self._after = after
        self._bytes = 0
        self._pending: list[Sendable] = []
        self._runs: dict[RunId, RunUpdate] | None = None
        self._news: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    @property
    def has_room_again(self) -> bool:
        """Whether something was refused, and all before it is on its way by now."""
        return self.lagging and not self._pending

    def resume(self) -> Place:
        """Where its watch begins, or goes on."""
        self.lagging = False
        runs = self._runs or {}
        return Place(self._after, [each.run_id for each in runs.values() if not _has_ended(each)])

    def tell(self, event: Told) -> bool:
        """Keep an event until it is sent, unless it is known; False if there is no room."""
        match event:
            case Message():
                return event.sequence <= self._after or self._keep_message(event)
            case RunUpdate():
                return self._runs_before(event) == event or self._keep_run(event)
            case _:
                assert_never(event)

    def add(self, event: Event) -> None:
        """Keep an event of the gateway's own, for which there is always room."""
        self._pending.append((event, self._after))
        self._wake()

    def fail(self, error: Exception) -> None:
        """Let `next` raise this once all before it was sent."""
        self._failure = error
        self._wake()

    async def next(self) -> Sendable:
        """What is to be sent next; waits until there is something.

        Raises:
            Exception: nothing will follow.
        """
        while not self._pending:
            if self._failure is not None:
                raise self._failure
            self._news = asyncio.get_running_loop().create_future()
            self.waiting_since = time.monotonic()
            await self._news
        self._news = self.waiting_since = None
        event, through = self._pending.pop(0)
        if isinstance(event, Message):
            self._bytes -= len(event.encoded)
        return event, through

    def _runs_before(self, update: RunUpdate) -> RunUpdate | None:
        return self._runs.get(update.run_id) if self._runs else None

    def _keep_message(self, message: Message) -> bool:
        if not self._has_room(len(message.encoded)):
            return False
        self._after = message.sequence
        self._bytes += len(message.encoded)
        self._pending.append((message, message.sequence))
        self._wake()
        return True

    def _keep_run(self, update: RunUpdate) -> bool:
        if not self._has_room(0):
            return False
        if self._runs is None:
            self._runs = {}
        self._runs.pop(update.run_id, None)
        self._runs[update.run_id] = update
        if len(self._runs) > _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        self.add(update)
        return True

    def _has_room(self, more_bytes: int) -> bool:
        full = len(self._pending) >= _MOST_EVENTS or self._bytes + more_bytes > _MOST_BYTES
        # A single message may be larger than the bound, so one is always taken.
        self.lagging = full and bool(self._pending)
        return not self.lagging

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _has_ended(update: RunUpdate) -> bool:
    return update.state is not None and update.state.final
