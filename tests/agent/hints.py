"""Hints within one process."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class LocalSubscription:
    """A waiter; satisfies `hints.Subscription`."""

    def __init__(self, hints: "LocalHints", *, wake: Callable[[], None] | None = None) -> None:
        self._hints = hints
        self._hinted = asyncio.Event()
        self.waited = asyncio.Event()
        self.wake = wake or self._hinted.set

    async def wait(self) -> None:
        """Return after a hint, or after the time to poll."""
        self.waited.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hinted.wait(), self._hints.poll)
        self._hinted.clear()


class LocalHints:
    """Satisfies `Listener` and `Notifier`.

    Attributes:
        poll: seconds after which waiters return without a hint.
        lost: whether hints are lost on their way.
        sent: how often each key was notified.
    """

    def __init__(self, *, poll: float = 5.0) -> None:
        self.poll = poll
        self.lost = False
        self.sent: Counter[str] = Counter()
        self.subscribed: defaultdict[str, set[LocalSubscription]] = defaultdict(set)

    @contextmanager
    def subscribe(self, key: str) -> Iterator[LocalSubscription]:
        """Hints at `key`, until the end of the block."""
        subscription = LocalSubscription(self)
        self.subscribed[key].add(subscription)
        try:
            yield subscription
        finally:
            self.subscribed[key].discard(subscription)

    @contextmanager
    def on_hint(self, key: str, call: Callable[[], None]) -> Iterator[None]:
        """Call at each hint at `key`, until the end of the block."""
        subscription = LocalSubscription(self, wake=call)
        self.subscribed[key].add(subscription)
        try:
            yield
        finally:
            self.subscribed[key].discard(subscription)

    async def waiter(self, key: str) -> None:
        """Wait until somebody waits for hints at `key`."""
        async with asyncio.timeout(5):
            while not self.subscribed[key]:  # noqa: ASYNC110 - conditions of any kind
                await asyncio.sleep(0)
            for subscription in list(self.subscribed[key]):
                await subscription.waited.wait()

    def notify(self, key: str) -> None:
        """Hint at news of `key`."""
        self.sent[key] += 1
        for subscription in () if self.lost else self.subscribed[key]:
            subscription.wake()
