"""Which of a model's endpoints is asked next, and when.

Each endpoint is behind a breaker. While all of them rest, calls queue here in the order in which
they came: the first watches the time, the others cost nothing, and all lend their places to other
work. The first becomes the probe, and if that fails it queues again behind the others, so that no
call spends all its attempts on endpoints that are down. Once one answers, the others follow as they
find places.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

import structlog

from services.agent.clients.model_breaker import Breaker, BreakerPolicy, BreakerState, Pass
from services.agent.domain.places import Loan, Places


class RestingError(Exception):
    """No endpoint may be asked in time.

    Attributes:
        seconds: until one may be.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Endpoints:
    """The endpoints of one model by their places, in order of preference."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        policy: BreakerPolicy | None = None,
        places: Places | None = None,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """All are asked at first.

        Args:
            names: what the log calls them.
            policy: when one is left alone.
            places: calls that wait lend theirs.
            log: told when one begins to rest, and when it answers again.
        """
        self._names = names
        self._breakers = [Breaker(policy or BreakerPolicy()) for _ in names]
        self._places = places or Places(1)
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()
        self._log = log

    def states(self) -> Sequence[BreakerState]:
        """Where each of them stands."""
        return [breaker.state for breaker in self._breakers]

    @property
    def rest(self) -> float:
        """Seconds until one may be asked; 0 if one may at once."""
        now = _now()
        return min(breaker.wait(now) for breaker in self._breakers)

    def fresher(self, tried: Sequence[int]) -> bool:
        """Whether one may be asked that was tried less often than the last of `tried`."""
        now, times = _now(), tried.count(tried[-1])
        return any(
            tried.count(place) < times and breaker.wait(now) == 0
            for place, breaker in enumerate(self._breakers)
        )

    async def turn(self, tried: Sequence[int], *, deadline: float) -> "Turn":
        """Leave to ask the first of those that were tried least often, once one may be asked.

        Args:
            tried: places that the call has tried, one for each attempt.
            deadline: time of the event loop.

        Raises:
            RestingError: none may be asked before the deadline.
        """
        self._check(deadline)
        turn = None if self._queue.locked() else self._leave(tried)
        if turn is not None:
            return turn
        with self._places.lent() as loan:
            try:
                async with asyncio.timeout_at(deadline), self._queue:
                    return await self._first(tried, loan, deadline)
            except TimeoutError as error:
                raise RestingError(self.rest) from error

    async def _first(self, tried: Sequence[int], loan: Loan, deadline: float) -> "Turn":
        """Leave for the first in the queue."""
        while True:
            if self.rest == 0:
                await loan.regain()
                turn = self._leave(tried)
                if turn is not None:
                    return turn
            self._check(deadline)
            await self._change()

    def _leave(self, tried: Sequence[int]) -> "Turn | None":
        now = _now()
        for place in sorted(range(len(self._breakers)), key=tried.count):
            admitted = self._breakers[place].admit(now)
            if admitted is not None:
                after, passed = admitted
                self.become(place, after)
                return Turn(self, place, passed)
        return None

    def _check(self, deadline: float) -> None:
        """Refuse a wait that would be in vain; a probe may open the way at any moment."""
        rest = self.rest
        probed = BreakerState.HALF_OPEN in self.states()
        if not probed and _now() + rest >= deadline:
            raise RestingError(rest)

    async def _change(self) -> None:
        """Wait until a breaker changed, or lets a call through by itself."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rest):
                await self._changed.wait()

    def breaker(self, place: int) -> Breaker:
        """What is known of an endpoint."""
        return self._breakers[place]

    def become(self, place: int, after: Breaker) -> None:
        """Note what an endpoint has become."""
        before, self._breakers[place] = self._breakers[place], after
        if after.period != before.period:
            seconds = round(after.wait(_now()), 1)
            self._log.warning("endpoint rests", endpoint=self._names[place], seconds=seconds)
        elif after.state is BreakerState.CLOSED is not before.state:
            self._log.info("endpoint answers again", endpoint=self._names[place])
        self._changed.set()


class Turn:
    """Leave to ask one endpoint once; within its block it is told what came of that, if known.

    Attributes:
        place: the endpoint's.
    """

    def __init__(self, endpoints: Endpoints, place: int, passed: Pass) -> None:
        self.place = place
        self._endpoints = endpoints
        self._passed = passed

    def answered(self) -> None:
        """The endpoint answered, if only with a refusal."""
        self._become(self._breaker.answered(self._passed))

    def failed(self, asked: float = 0.0) -> None:
        """The endpoint failed, and may ask to be left alone for some seconds."""
        spread = random.random()  # noqa: S311 -- spreads load, guards nothing
        after = self._breaker.failed(self._passed, _now(), asked=asked, spread=spread)
        self._become(after)

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._become(self._breaker.given_back(self._passed, _now()))

    @property
    def _breaker(self) -> Breaker:
        return self._endpoints.breaker(self.place)

    def _become(self, after: Breaker) -> None:
        self._endpoints.become(self.place, after)


def _now() -> float:
    return asyncio.get_running_loop().time()
