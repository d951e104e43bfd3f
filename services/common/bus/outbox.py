"""The sending end of the bus: which keys are still to be sent.

Hints are sent together, many keys in one message, and outside the transactions that change the
rows: a PostgreSQL transaction that notifies holds a lock against all others until it is on disk,
which costs four fifths of the throughput (`bench/bus.py`). So `notify` is called after the commit.
A process that dies in between loses the hint; the waiters' poll covers that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable

SEPARATOR = ","
"""Separates the keys of one message; no key contains it."""

MAX_KEY_BYTES = 200
"""The length of the longest key, in UTF-8."""

MAX_WAITING_KEYS = 100_000
"""How many keys are kept for a bus that is away; of more, the oldest are forgotten."""

_PAUSE_PER_KEY, _LONGEST_PAUSE = 0.002, 0.020


class Outbox:
    """Collects the keys to be sent; satisfies `hints.Notifier`."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()
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
        self._kept()

    async def flush(self) -> None:
        """Wait until all has been sent."""
        await self._all_sent.wait()

    async def empty(self, send: Callable[[Collection[str]], Awaitable[None]]) -> None:
        """Send the keys that come in, all that have collected at once, until cancelled.

        After few keys the next ones are sent soon; after many more are given time to collect, so
        that however many there are, they are sent no more than fifty times a second.

        Args:
            send: sends them; returns when they are on their way.

        Raises:
            Exception: what `send` raises; the keys it was given are kept.
        """
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            keys, self._waiting = self._waiting, OrderedDict()
            try:
                await send(keys)
            except BaseException:
                self._waiting = keys | self._waiting
                self._kept()
                raise
            if not self._waiting:
                self._all_sent.set()
            await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE_PER_KEY * len(keys)))

    def _kept(self) -> None:
        while len(self._waiting) > MAX_WAITING_KEYS:
            self._waiting.popitem(last=False)
        self._all_sent.clear()
        self._wanted.set()


def payloads(keys: Iterable[str], *, max_bytes: int) -> list[str]:
    """The keys joined into as few messages of at most `max_bytes` each as keep their order."""
    messages: list[str] = []
    room = 0
    for key in keys:
        size = len(key.encode()) + len(SEPARATOR)
        if size <= room:
            messages[-1] += SEPARATOR + key
        else:
            messages.append(key)
            room = max_bytes + len(SEPARATOR)
        room -= size
    return messages


def keys_of(payload: str) -> list[str]:
    """The keys that a message carries."""
    return payload.split(SEPARATOR)
