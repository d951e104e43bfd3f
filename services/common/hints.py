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

    def subscribe(self, key: str) -> AbstractContextManager[Subscription]:
        """Hints at `key`, from now until the end of the block.

        A wait also returns without one: now and then, and when hints may have been lost.
        """

    def on_hint(self, key: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `call` at each hint at `key`, from now until the end of the block.

        For one who waits for many keys at once, and to whom no call comes without a hint: a
        subscription of its own says when to look at all of them.
        """


class Notifier(Protocol):
    """Sends hints, after the commit of what they hint at."""

    def notify(self, key: str) -> None:
        """Hint at news of `key`; never blocks and never fails."""
