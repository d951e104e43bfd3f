"""Wake-ups to other processes, over PostgreSQL's NOTIFY.

One connection per process sends all of them, many keys in one message, and outside the transactions
that change the rows: a transaction that notifies holds a lock against all others until it is on
disk, which costs four fifths of the throughput. So `notify` is called after the commit. A process
that dies in between loses the hint; the listeners' poll covers that.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from services.common.session import Connection, keep_session
from services.common.tasks import background_tasks

SEPARATOR = ","
"""Separates the keys of one message; no key contains it."""

MAX_KEY_BYTES = 200
"""The length of the longest key, in UTF-8."""

_MAX_PAYLOAD_BYTES = 7999
_MAX_WAITING_KEYS = 100_000
_WINDOW = 0.005
_ANSWER_TIMEOUT = 5.0
_FLUSH_TIMEOUT = 1.0
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class Notifier:
    """Collects keys and sends them on one channel; made by `open_notifier`."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()

    def notify(self, key: str) -> None:
        """Send a hint about `key` soon; never blocks, and never fails for lack of a connection.

        Raises:
            ValueError: the key is empty, too long, or contains the separator.
        """
        if not 0 < len(key.encode()) <= MAX_KEY_BYTES or SEPARATOR in key:
            raise ValueError(f"not a key to notify: {key!r}")
        self._waiting[key] = None
        if len(self._waiting) > _MAX_WAITING_KEYS:
            del self._waiting[next(iter(self._waiting))]
        self._all_sent.clear()
        self._wanted.set()

    async def flush(self) -> None:
        """Wait until all has been sent."""
        await self._all_sent.wait()

    async def send(self, session: Connection, channel: str) -> None:
        """Send the keys that come in, all that have collected at once, until cancelled.

        Raises:
            UnavailableError: the session is lost; the keys it did not send are kept.
        """
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            keys, self._waiting = self._waiting, {}
            try:
                await session.execute(_NOTIFY, channel, payloads(keys), timeout=_ANSWER_TIMEOUT)
            except BaseException:
                self._waiting = keys | self._waiting
                self._wanted.set()
                raise
            if not self._waiting:
                self._all_sent.set()
            await asyncio.sleep(_WINDOW)


def payloads(keys: Iterable[str]) -> list[str]:
    """The keys joined into as few messages as PostgreSQL's limit of 7,999 bytes allows."""
    messages: list[str] = []
    room = 0
    for key in keys:
        size = len(key.encode()) + len(SEPARATOR)
        if size <= room:
            messages[-1] += SEPARATOR + key
        else:
            messages.append(key)
            room = _MAX_PAYLOAD_BYTES + len(SEPARATOR)
        room -= size
    return messages


@asynccontextmanager
async def open_notifier(
    dsn: str, channel: str, *, application_name: str
) -> AsyncIterator[Notifier]:
    """A notifier for as long as the block lasts; it connects, and reconnects, in the background.

    Args:
        dsn: a direct address of the database, not a pooler's.
        channel: the channel that the listeners hear.
        application_name: shown in the server's activity view.
    """
    notifier = Notifier()

    async def send(session: Connection) -> None:
        await notifier.send(session, channel)

    sending = keep_session(
        dsn, send, application_name=application_name, settings={"synchronous_commit": "off"}
    )
    async with background_tasks() as tasks:
        tasks.start(f"notify {channel}", sending)
        try:
            yield notifier
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(notifier.flush(), _FLUSH_TIMEOUT)
