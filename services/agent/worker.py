"""Takes waiting runs for as long as there are places for them; `holding` has them worked on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from services.agent.domain import hints
from services.agent.domain.places import Places, own_place
from services.agent.domain.queue import Caution, Claim, RunQueue
from services.agent.holding import Holding, Turns, WorkerLimits
from services.common.errors import ServiceError
from services.common.hints import Listener, Notifier, Subscription
from services.common.tasks import background_tasks


class Worker:
    """One process's share of the work."""

    def __init__(
        self,
        queue: RunQueue,
        turns: Turns,
        *,
        places: Places,
        listener: Listener,
        notifier: Notifier,
        limits: WorkerLimits | None = None,
    ) -> None:
        """Works on what the queue gives.

        Args:
            queue: gives runs.
            turns: works on one.
            places: bound how many are worked on at once.
            listener: hears of runs that wait, and of wishes to stop.
            notifier: tells of runs that are handed back, and of what is written.
            limits: bound it otherwise.
        """
        self._queue = queue
        self._places = places
        self._listener = listener
        self._limits = limits or WorkerLimits()
        self._holding = Holding(
            queue, turns, listener=listener, notifier=notifier, limits=self._limits
        )
        self._stopping = False
        self._log = structlog.get_logger("worker")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Works for as long as the block lasts; what is in hand then is handed back."""
        with self._listener.subscribe(hints.RUNS) as news:
            async with self._holding.open(), background_tasks() as tasks:
                taking = tasks.start("take runs", self._take(news))
                try:
                    yield
                finally:
                    self._stopping = True
                    news.wake()
                    await asyncio.wait({taking})

    async def _take(self, news: Subscription) -> None:
        """Take runs while there are places."""
        self._places.tell(news.wake)
        while not self._stopping:
            free = self._places.free
            until = asyncio.get_running_loop().time() + self._limits.lease.total_seconds()
            taken = await self._claim(free) if free else []
            for claim in taken:
                self._places.take()
                with own_place():
                    self._holding.hold(
                        claim,
                        until,
                        crash_limit=self._limits.crash_limit,
                        then=self._places.give_back,
                    )
            if not free or len(taken) < free:
                await news.wait()

    async def _claim(self, most: int) -> list[Claim]:
        try:
            claims = await self._queue.claim(
                lease=self._limits.lease, most=most, caution=self._caution()
            )
        except ServiceError as error:
            self._log.warning("no runs can be taken", reason=error.reason)
            return []
        return list(claims)

    def _caution(self) -> Caution:
        """Take suspected runs one at a time, so that one is not the end of all others."""
        limit = self._limits.suspected_at
        in_hand = any(claim.crashes >= limit for claim in self._holding.claims)
        return Caution(limit, most=0 if in_hand else 1)
