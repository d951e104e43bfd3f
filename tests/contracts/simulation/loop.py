"""An event loop whose time is moved by hand, so that a test decides what happens when."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class HandLoop(asyncio.SelectorEventLoop):
    """Runs when it is told to, for as long as there is something to do at this moment.

    Real input and output is waited for only inside of `outside`.
    """

    # What is to be done now and later; asyncio's stubs leave it out.
    _ready: "deque[asyncio.Handle]"
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__()
        self._now = time
        self._outside = 0

    def time(self) -> float:
        """The time by hand."""
        return self._now()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """A block that waits for something outside, such as a database."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1
            if not self._outside:
                self.stop()

    def do(self, work: Coroutine[object, object, T]) -> T:
        """What `work` gives, which waits for nothing but the outside."""

        async def outside() -> T:
            with self.outside():
                return await work

        task = self.create_task(outside())
        self.settle()
        return task.result()

    def settle(self) -> bool:
        """Run until nothing is left to do at this moment; gives whether anything was."""
        worked = False
        while self._outside or self._ready or self._due():
            if not self._outside:
                self.call_soon(self.stop)
            self.run_forever()
            worked = True
        return worked

    @property
    def next_timer(self) -> float | None:
        """When there is something to do again."""
        timers = (each.when() for each in self._scheduled if not each.cancelled())
        return min(timers, default=None)

    def _due(self) -> bool:
        timer = self.next_timer
        return timer is not None and timer <= self.time()
