"""A worker's places: how many runs it works on at once.

A run that waits for what is far away, such as a model's server that is down, lends its place to
other runs, so that they do not wait for that server too. It takes a place again before it goes on,
and before any run that was not begun yet.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress


class Places:
    """So many places, and so many runs besides that may have lent theirs."""

    def __init__(self, most: int, *, most_lent: int = 0) -> None:
        """All places are free.

        Args:
            most: how many there are.
            most_lent: beyond so many runs without a place, lending one lets no other run begin.
        """
        self._most = most
        self._most_runs = most + most_lent
        self._runs = 0
        self._taken = 0
        self._returning: deque[asyncio.Future[None]] = deque()
        self._freed: Callable[[], None] = lambda: None

    @property
    def free(self) -> int:
        """How many runs may begin now."""
        places = self._most - self._taken - len(self._returning)
        return max(min(places, self._most_runs - self._runs), 0)

    def tell(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a place may have come free."""
        self._freed = freed

    def take(self) -> None:
        """A run begins."""
        self._runs += 1
        self._taken += 1

    def give_back(self) -> None:
        """A run has ended."""
        self._runs -= 1
        self._leave()

    @contextmanager
    def lent(self) -> Iterator["Loan"]:
        """Lend a place to other runs, until it is regained, or the end of the block.

        A block that ends without having regained it, as one that fails does, waits for nobody: for
        a moment one run more than there are places may be worked on.
        """
        self._leave()
        loan = Loan(self._regain)
        try:
            yield loan
        finally:
            if not loan.regained:
                self._taken += 1

    def _leave(self) -> None:
        self._taken -= 1
        while self._returning and self._taken < self._most:
            first = self._returning.popleft()
            if not first.done():
                first.set_result(None)
                self._taken += 1
        self._freed()

    async def _regain(self) -> None:
        if self._taken < self._most and not self._returning:
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._returning.remove(turn)
            else:
                self._leave()
            raise


class Loan:
    """A place that was lent.

    Attributes:
        regained: whether it is taken again.
    """

    def __init__(self, regain: Callable[[], Awaitable[None]]) -> None:
        self.regained = False
        self._regain = regain

    async def regain(self) -> None:
        """Take a place again, as soon as it is the turn of this loan; once is enough."""
        if not self.regained:
            await self._regain()
            self.regained = True
