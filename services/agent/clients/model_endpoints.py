"""Which of a model's endpoints is asked next, and when.

Endpoints of the least priority are asked as long as one of them may be; those of equal priority
share the calls by weight. Each is behind a breaker and may have a limit of calls at once. While all
of them rest or have as many calls as they may, further calls queue here in the order in which they
came: the first watches, the others cost nothing, and all lend their places to other work. After a
rest the first becomes the probe, and if that fails it queues again behind the others, so that no
call spends all its attempts on endpoints that are down. Once one answers, the others follow as they
find places.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import structlog

from services.agent.clients.model_breaker import Breaker, BreakerPolicy, BreakerState, Pass
from services.agent.clients.model_shares import Shares
from services.agent.domain.chat import EndpointInfo, EndpointState
from services.agent.domain.places import Loan, Places

_STATES: Final = {
    BreakerState.CLOSED: EndpointState.HEALTHY,
    BreakerState.OPEN: EndpointState.RESTING,
    BreakerState.HALF_OPEN: EndpointState.PROBING,
}


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """When an endpoint is asked.

    Attributes:
        name: what the log calls it.
        priority: one with a higher number is asked only where none with a lower one may be.
        weight: its share of the calls among those of its priority.
        max_concurrent: calls at once; None where they are not limited.
    """

    name: str
    priority: int = 0
    weight: int = 1
    max_concurrent: int | None = None


class RestingError(Exception):
    """No endpoint may be asked in time.

    Attributes:
        seconds: until one may be; 0 where one only has too many calls.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Endpoints:
    """The endpoints of one model by their places."""

    def __init__(
        self,
        rules: Sequence[EndpointRules],
        *,
        policy: BreakerPolicy | None = None,
        places: Places | None = None,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """All are asked at first.

        Args:
            rules: when each is asked.
            policy: when one is left alone.
            places: calls that wait lend theirs.
            log: told when one begins to rest, and when it answers again.
        """
        self._rules = rules
        self._breakers = [Breaker(policy or BreakerPolicy()) for _ in rules]
        self._calls = [0] * len(rules)
        self._shares = Shares([each.weight for each in rules])
        self._places = places or Places(1)
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()
        self._log = log

    def states(self) -> Sequence[BreakerState]:
        """Where each of them stands."""
        return [breaker.state for breaker in self._breakers]

    def infos(self) -> Sequence[EndpointInfo]:
        """What is told of each."""
        return [
            EndpointInfo(
                place=place,
                priority=rules.priority,
                weight=rules.weight,
                max_concurrent=rules.max_concurrent or 0,
                state=_STATES[breaker.state],
                calls=calls,
            )
            for place, (rules, breaker, calls) in enumerate(
                zip(self._rules, self._breakers, self._calls, strict=True), start=1
            )
        ]

    @property
    def rest(self) -> float:
        """Seconds until one may be asked; 0 if one may at once."""
        now = _now()
        return min(breaker.wait(now) for breaker in self._breakers)

    def fresher(self, tried: Sequence[int]) -> bool:
        """Whether one may be asked that was tried less often than the last of `tried`."""
        times = tried.count(tried[-1])
        return any(tried.count(place) < times for place in self._free())

    async def turn(self, tried: Sequence[int], *, deadline: float) -> "Turn":
        """Leave to ask one of those that were tried least often, once one may be asked.

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
            if self._free():
                await loan.regain()
                turn = self._leave(tried)
                if turn is not None:
                    return turn
            self._check(deadline)
            await self._change()

    def _leave(self, tried: Sequence[int]) -> "Turn | None":
        ranks = {place: (tried.count(place), self._rules[place].priority) for place in self._free()}
        if not ranks:
            return None
        first = min(ranks.values())
        place = self._shares.next([each for each, rank in ranks.items() if rank == first])
        admitted = self._breakers[place].admit(_now())
        if admitted is None:
            return None
        after, passed = admitted
        self._calls[place] += 1
        self.become(place, after)
        return Turn(self, place, passed)

    def _free(self) -> Sequence[int]:
        """Places of those that may be asked now."""
        now = _now()
        return [
            place
            for place, breaker in enumerate(self._breakers)
            if breaker.wait(now) == 0 and not self._full(place)
        ]

    def _full(self, place: int) -> bool:
        most = self._rules[place].max_concurrent
        return most is not None and self._calls[place] >= most

    def _check(self, deadline: float) -> None:
        """Refuse a wait that would be in vain; a probe may open the way at any moment."""
        rest = self.rest
        probed = BreakerState.HALF_OPEN in self.states()
        if not probed and _now() + rest >= deadline:
            raise RestingError(rest)

    async def _change(self) -> None:
        """Wait until something changed, or a breaker lets a call through by itself."""
        now = _now()
        rests = [
            breaker.wait(now)
            for place, breaker in enumerate(self._breakers)
            if not self._full(place)
        ]
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(rests, default=None)):
                await self._changed.wait()

    def ended(self, place: int) -> None:
        """Note that a call to an endpoint has ended."""
        self._calls[place] -= 1
        self._changed.set()

    def breaker(self, place: int) -> Breaker:
        """What is known of an endpoint."""
        return self._breakers[place]

    def become(self, place: int, after: Breaker) -> None:
        """Note what an endpoint has become."""
        before, self._breakers[place] = self._breakers[place], after
        if after.period != before.period:
            seconds = round(after.wait(_now()), 1)
            self._log.warning("endpoint rests", endpoint=self._rules[place].name, seconds=seconds)
        elif after.state is BreakerState.CLOSED is not before.state:
            self._log.info("endpoint answers again", endpoint=self._rules[place].name)
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
        self._endpoints.ended(self.place)
        if kind is not None:
            self._become(self._breaker.given_back(self._passed, _now()))

    @property
    def _breaker(self) -> Breaker:
        return self._endpoints.breaker(self.place)

    def _become(self, after: Breaker) -> None:
        self._endpoints.become(self.place, after)


def _now() -> float:
    return asyncio.get_running_loop().time()
