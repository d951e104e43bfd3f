"""A worker's places: how many runs it works on at once.

A run that waits for what is far away, such as a model's server that is down, lends its place to
other runs, so that they do not wait for that server too. It takes a place again before it goes on,
and before any run that was not begun yet. A run and the sub-agents that it asks have one place
together, which is lent while each of them waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field


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
        self.leave()

    @contextmanager
    def lent(self) -> Iterator["Loan"]:
        """Lend a place to other runs, until it is regained, or the end of the block.

        It stays where it is as long as others work in it. A block that ends without having regained
        it, as one that fails does, waits for nobody: for a moment one run more than there are
        places may be worked on.
        """
        member = _MEMBER.get() or _Member(_Shared())
        shared = member.shared
        shared.places = self
        shared.count(-1)
        loan = Loan(shared)
        try:
            yield loan
        finally:
            if not loan.regained:
                shared.count(1)

    def take_back(self) -> None:
        """Take a lent place without waiting for one."""
        self._taken += 1

    def leave(self) -> None:
        """Leave a place to whoever waits for one."""
        self._taken -= 1
        while self._returning and self._taken < self._most:
            first = self._returning.popleft()
            if not first.done():
                first.set_result(None)
                self._taken += 1
        self._freed()

    async def regain(self) -> None:
        """Take a lent place again, once it is the turn of whoever wants it."""
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
                self.leave()
            raise


@dataclass(slots=True, eq=False)
class _Shared:
    """One place, and what becomes of it.

    Attributes:
        working: how many runs work in it, those that wait not counted.
        places: which it is one of, as far as that matters yet.
        lent: whether others have it.
        regaining: held by whoever wants it back.
    """

    working: int = 1
    places: Places | None = None
    lent: bool = False
    regaining: asyncio.Lock = field(default_factory=asyncio.Lock)

    def count(self, more: int) -> None:
        """Note that so many runs more work in it; it is lent while there are none."""
        self.working += more
        if self.places is not None and self.lent != (self.working == 0):
            self.lent = not self.lent
            if self.lent:
                self.places.leave()
            else:
                self.places.take_back()

    async def regain(self) -> None:
        """Have it again, and one run more at work in it."""
        async with self.regaining:
            if self.places is not None and self.lent:
                await self.places.regain()
                self._regained(self.places)
        self.count(1)

    def _regained(self, places: Places) -> None:
        if not self.lent:
            places.leave()  # others work in it meanwhile, who waited for nobody
        self.lent = False


@dataclass(slots=True, eq=False)
class _Member:
    """A run, as one of those that share a place.

    Attributes:
        shared: the place.
        asked: how many sub-agents it waits for.
    """

    shared: _Shared
    asked: int = 0


_MEMBER: ContextVar[_Member | None] = ContextVar("member", default=None)


@contextmanager
def own_place() -> Iterator[None]:
    """What is begun within this block works in a place of its own."""
    token = _MEMBER.set(_Member(_Shared()))
    try:
        yield
    finally:
        _MEMBER.reset(token)


@contextmanager
def callers_place() -> Iterator[None]:
    """What is begun within this block works in the place of the run that waits for it there."""
    caller = _MEMBER.get() or _Member(_Shared())
    token = _MEMBER.set(_Member(caller.shared))
    caller.asked += 1
    caller.shared.count(1 if caller.asked > 1 else 0)
    try:
        yield
    finally:
        _MEMBER.reset(token)
        caller.asked -= 1
        caller.shared.count(-1 if caller.asked else 0)


class Loan:
    """A place that was lent.

    Attributes:
        regained: whether it is taken again.
    """

    def __init__(self, shared: _Shared) -> None:
        self.regained = False
        self._shared = shared

    async def regain(self) -> None:
        """Take a place again, as soon as it is the turn of this loan; once is enough."""
        if not self.regained:
            await self._shared.regain()
            self.regained = True
