"""The receiving end of the bus: who in this process waits for which key, and for how long."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, KeysView
from contextlib import AbstractContextManager, contextmanager, suppress

_DEBOUNCE = 0.01


class Waiter:
    """One waiter for one key; satisfies `hints.Subscription`.

    Attributes:
        poll: whether it also returns without a hint.
    """

    def __init__(self, waiters: "Waiters", *, poll: bool) -> None:
        self.poll = poll
        self._waiters = waiters
        self._hinted = asyncio.Event()
        self._last_return = 0.0

    async def wait(self) -> None:
        """Return when there may be news since the last return, or since `subscribe`.

        Subscribe, read, then alternate between waiting and reading: so nothing is missed.
        """
        clock = asyncio.get_running_loop().time
        with suppress(TimeoutError):
            async with asyncio.timeout(self._waiters.patience() if self.poll else None):
                await self._hinted.wait()
                await asyncio.sleep(self._last_return + _DEBOUNCE - clock())
        self._hinted.clear()
        self._last_return = clock()

    def wake(self) -> None:
        """Let the present `wait` return, or if there is none the next."""
        self._hinted.set()


class Called:
    """One whose function is called at each hint at one key."""

    poll = False

    def __init__(self, call: Callable[[], None]) -> None:
        self.wake = call


class Waiters:
    """All waiters of a process; satisfies `hints.Listener`.

    Attributes:
        keys_changed: set when there is the first waiter for a key, or no more.
    """

    def __init__(self, *, poll: float) -> None:
        """No waiters yet.

        Args:
            poll: seconds after which those who poll return without a hint.
        """
        self.keys_changed = asyncio.Event()
        self._poll = poll
        self._waiters: defaultdict[str, set[Waiter | Called]] = defaultdict(set)

    @property
    def keys(self) -> KeysView[str]:
        """The keys that somebody waits for."""
        return self._waiters.keys()

    @contextmanager
    def subscribe(self, key: str, *, poll: bool = True) -> Iterator[Waiter]:
        """See `services.common.hints.Listener`."""
        waiter = Waiter(self, poll=poll)
        with self._waiting(key, waiter):
            yield waiter

    def on_hint(self, key: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """See `services.common.hints.Listener`."""
        return self._waiting(key, Called(call))

    @contextmanager
    def _waiting(self, key: str, waiter: Waiter | Called) -> Iterator[None]:
        if key not in self._waiters:
            self.keys_changed.set()
        self._waiters[key].add(waiter)
        try:
            yield
        finally:
            self._waiters[key].discard(waiter)
            if not self._waiters[key]:
                del self._waiters[key]
                self.keys_changed.set()

    def patience(self) -> float:
        """Seconds to wait for a hint before returning anyway; jittered to spread waiters out."""
        return self._poll * random.uniform(0.75, 1.0)  # noqa: S311

    def wake(self, keys: Iterable[str]) -> None:
        """Pass a hint on to the waiters for each of the keys; what nobody waits for is ignored."""
        for key in keys:
            for waiter in self._waiters.get(key, ()):
                waiter.wake()

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """To be held for as long as hints can be heard.

        Around both ends hints are lost, so those who poll are woken to look at the rows now.
        """
        self._wake_pollers()
        try:
            yield
        finally:
            self._wake_pollers()

    def _wake_pollers(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                if waiter.poll:
                    waiter.wake()
