"""Wake-ups from other processes, over PostgreSQL's LISTEN.

A wake-up is a hint that the rows of a key may have changed; the rows are the truth. Hints may be
lost, doubled or late, so a waiter reads the rows after every return, and also returns now and then
without a hint. `services.common.notify` sends the hints.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from services.common.db_errors import unreachable
from services.common.notify import SEPARATOR
from services.common.session import Connection, keep_session
from services.common.tasks import background_tasks

_ANSWER_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often waiters return and the connection is checked, in seconds.

    Attributes:
        poll: the longest wait without a hint.
        poll_when_deaf: the same while there is no connection.
        debounce: the shortest time between two returns because of hints.
        check: between two checks that a silent connection is alive.
    """

    poll: float = 5.0
    poll_when_deaf: float = 1.0
    debounce: float = 0.01
    check: float = 10.0


class Subscription:
    """One waiter for one key; made by `Listener.subscribe`.

    Attributes:
        poll: whether it also returns without a hint.
    """

    def __init__(self, listener: "Listener", *, poll: bool) -> None:
        self._listener = listener
        self.poll = poll
        self._hinted = asyncio.Event()
        self._last_return = 0.0

    async def wait(self) -> None:
        """Return when there may be news since the last return, or since `subscribe`.

        Subscribe, read, then alternate between waiting and reading: so nothing is missed.
        """
        clock = asyncio.get_running_loop().time
        with suppress(TimeoutError):
            async with asyncio.timeout(self._listener.patience() if self.poll else None):
                await self._hinted.wait()
                await asyncio.sleep(self._last_return + self._listener.pace.debounce - clock())
        self._hinted.clear()
        self._last_return = clock()

    def wake(self) -> None:
        """Let the present `wait` return, or if there is none the next."""
        self._hinted.set()


class Listener:
    """Hears one channel on behalf of all waiters of a process; made by `open_listener`.

    Attributes:
        pace: how often waiters return.
        connected: set while hints can be heard.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.connected = asyncio.Event()
        self._subscriptions: defaultdict[str, set[Subscription]] = defaultdict(set)

    @contextmanager
    def subscribe(self, key: str, *, poll: bool = True) -> Iterator[Subscription]:
        """See `services.common.hints.Listener`."""
        subscription = Subscription(self, poll=poll)
        self._subscriptions[key].add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[key].discard(subscription)
            if not self._subscriptions[key]:
                del self._subscriptions[key]

    def patience(self) -> float:
        """Seconds to wait for a hint before returning anyway; jittered to spread waiters out."""
        seconds = self.pace.poll if self.connected.is_set() else self.pace.poll_when_deaf
        return seconds * random.uniform(0.75, 1.0)  # noqa: S311

    async def hear(self, session: Connection, channel: str) -> None:
        """Wake the waiters of the keys that come over `channel`, until the session is lost.

        Raises:
            UnavailableError: the session is lost.
        """
        lost = asyncio.Event()
        session.add_termination_listener(lambda _: lost.set())
        await session.add_listener(channel, lambda *heard: self._pass_on(str(heard[-1])))
        self.connected.set()
        self._wake_all()
        try:
            while not lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), self.pace.check)
                    raise unreachable()
                await session.fetchval("SELECT 1", timeout=_ANSWER_TIMEOUT)
        finally:
            self.connected.clear()
            self._wake_all()

    def _pass_on(self, payload: str) -> None:
        for key in payload.split(SEPARATOR):
            for subscription in self._subscriptions.get(key, ()):
                subscription.wake()

    def _wake_all(self) -> None:
        """Hints may have been lost, or will be, so whoever polls should look at the rows now."""
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                if subscription.poll:
                    subscription.wake()


@asynccontextmanager
async def open_listener(
    dsn: str, channel: str, *, application_name: str, pace: Pace | None = None
) -> AsyncIterator[Listener]:
    """A listener for as long as the block lasts; it connects, and reconnects, in the background.

    Args:
        dsn: a direct address of the database, not a pooler's.
        channel: the channel that the notifiers send on.
        application_name: shown in the server's activity view.
        pace: how often waiters return.
    """
    listener = Listener(pace or Pace())

    async def hear(session: Connection) -> None:
        await listener.hear(session, channel)

    async with background_tasks() as tasks:
        tasks.start(f"listen {channel}", keep_session(dsn, hear, application_name=application_name))
        yield listener
