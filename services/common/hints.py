"""Hints that rows may have changed, as the domain sees them.

A hint may be lost, doubled or late: the rows are the truth, and whoever waits reads them after each
return. `services.common.bus` carries them from one process to another.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Subscription(Protocol):
    """One waiter for hints at one key."""

    async def wait(self) -> None:
        """Return when there may be news since the last return, and now and then without any."""

    def wake(self) -> None:
        """Let the present `wait` return, or else the next one."""


class Listener(Protocol):
    """Hears hints from all processes."""

    def subscribe(self, key: str, *, poll: bool = True) -> AbstractContextManager[Subscription]:
        """Hints at `key`, from now until the end of the block.

        Args:
            key: what there may be news of.
            poll: whether waits also end without a hint: now and then, and when hints may have been
                lost. Without it only hints and `wake` end them; somebody else has to look at the
                rows on behalf of many such waiters, from a polling subscription of its own.
        """

    def on_hint(self, key: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `call` at each hint at `key`, from now until the end of the block.

        For one who waits for many keys at once. It is not called without a hint, as above.
        """


class Notifier(Protocol):
    """Sends hints, after the commit of what they hint at."""

    def notify(self, key: str) -> None:
        """Hint at news of `key`; never blocks and never fails."""
