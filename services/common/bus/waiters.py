"""The receiving end of the bus: who in this process waits for which key, and for how long."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, KeysView
from contextlib import contextmanager, suppress

_DEBOUNCE = 0.01


class Waiter:
    """One who waits for hints at one key; satisfies `hints.Subscription`."""

    def __init__(self, *, poll: float) -> None:
        """One who waits.

        Args:
            poll: the longest wait, in seconds; each is shorter by chance, to spread waiters out.
        """
        self._poll = poll
        self._hinted = asyncio.Event()
        self._last_return = 0.0

    async def wait(self) -> None:
        """Return when there may be news since the last return, or since `subscribe`.

        Subscribe, read, then alternate between waiting and reading: so nothing is missed.
        """
        clock = asyncio.get_running_loop().time
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll * random.uniform(0.75, 1.0)):  # noqa: S311
                await self._hinted.wait()
                await asyncio.sleep(self._last_return + _DEBOUNCE - clock())
        self._hinted.clear()
        self._last_return = clock()

    def wake(self) -> None:
        """Let the present `wait` return, or if there is none the next."""
        self._hinted.set()


class Waiters:
    """All who wait in this process; satisfies `hints.Listener`.

    Attributes:
        keys_changed: set when somebody is the first to wait for a key, or was the last.
    """

    def __init__(self, *, poll: float) -> None:
        """Nobody waits yet.

        Args:
            poll: seconds after which subscriptions return without a hint.
        """
        self.keys_changed = asyncio.Event()
        self._poll = poll
        self._calls: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._polling: set[Waiter] = set()

    @property
    def keys(self) -> KeysView[str]:
        """The keys that somebody waits for."""
        return self._calls.keys()

    @contextmanager
    def subscribe(self, key: str) -> Iterator[Waiter]:
        """See `services.common.hints.Listener`."""
        waiter = Waiter(poll=self._poll)
        self._polling.add(waiter)
        try:
            with self.on_hint(key, waiter.wake):
                yield waiter
        finally:
            self._polling.discard(waiter)

    @contextmanager
    def on_hint(self, key: str, call: Callable[[], None]) -> Iterator[None]:
        """See `services.common.hints.Listener`."""
        if key not in self._calls:
            self.keys_changed.set()
        self._calls[key].append(call)
        try:
            yield
        finally:
            self._calls[key].remove(call)
            if not self._calls[key]:
                del self._calls[key]
                self.keys_changed.set()

    def pass_on(self, keys: Iterable[str]) -> None:
        """Pass hints at these keys on to who waits for them; the others are ignored."""
        for key in keys:
            for call in tuple(self._calls.get(key, ())):
                call()

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """To be held for as long as hints can be heard.

        Around both ends hints are lost, so all subscriptions return, to look at the rows now.
        """
        self._wake_all()
        try:
            yield
        finally:
            self._wake_all()

    def _wake_all(self) -> None:
        for waiter in self._polling:
            waiter.wake()
