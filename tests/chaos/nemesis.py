"""What breaks things: one task each, at a pace of its own, until its count is reached."""

import asyncio
import os
import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from services.common.errors import ServiceError
from tests.chaos import evidence
from tests.chaos.failpoints import POINTS
from tests.chaos.failpoints import VARIABLE as FAILPOINTS
from tests.chaos.history import Subscription
from tests.chaos.processes import Process
from tests.chaos.system import Slot, System
from tests.faults.proxy import Proxy

# At these a frozen worker has something in hand that it writes once it lives again.
_LATE = ("reply.before", "result.before", "finish.before", "announce.before")

_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """How often each kind of fault comes.

    Attributes:
        kills: SIGKILLs of workers from outside; those that arm themselves come on top.
        freezes: SIGSTOPs of workers from outside, likewise.
        postgres: SIGKILLs of PostgreSQL.
        replicas: SIGKILLs of gateways and of replicas that answer calls.
        cuts: of each subscriber's connection.
        seconds: over which they are spread.
        armed: the share of workers that kill or freeze themselves at a failpoint.
        ripe: how often a failpoint is passed at most before it acts.
    """

    kills: int
    freezes: int
    postgres: int
    replicas: int
    cuts: int
    seconds: float
    armed: float = 0.4
    ripe: int = 12


@dataclass(slots=True)
class Toll:
    """What was done.

    Attributes:
        kills, freezes, replica_kills: how often.
        accepted: when PostgreSQL accepted connections again, by its own clock, in seconds.
        held_together: what was seen of sessions with several runs held.
        samples: how often that was looked at.
    """

    kills: int = 0
    freezes: int = 0
    replica_kills: int = 0
    accepted: list[float] = field(default_factory=list)
    held_together: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    samples: int = 0


class Nemesis:
    """Breaks one system; `healing` is set once it is to be left in peace."""

    def __init__(self, system: System, pace: Pace, *, chance: random.Random) -> None:
        self.toll = Toll()
        self.healing = asyncio.Event()
        self._system = system
        self._pace = pace
        self._chance = chance

    async def keep(self, slot: Slot) -> None:
        """Keep a worker's slot filled, and thaw whoever is frozen there, until cancelled."""
        while True:
            process = await slot.start(**self._arms())
            thawing = asyncio.ensure_future(self._thaw(process))
            try:
                await process.ended.wait()
            finally:
                thawing.cancel()
            if process.status == -signal.SIGKILL:
                self.toll.kills += 1

    def _arms(self) -> Mapping[str, str]:
        if self._chance.random() > self._pace.armed or self.healing.is_set():
            return {}
        ripe = self._chance.randint(1, self._pace.ripe)
        if self._chance.random() < 0.5:
            return {FAILPOINTS: f"{self._chance.choice(_LATE)}=stop@{ripe}"}
        return {FAILPOINTS: f"{self._chance.choice(POINTS)}=kill@{ripe}"}

    async def _thaw(self, process: Process) -> None:
        lease = self._system.size.lease
        while True:
            await process.frozen.wait()
            self.toll.freezes += 1
            await asyncio.sleep(lease * self._chance.uniform(1.4, 2.2))
            process.send(signal.SIGCONT)

    async def kill_workers(self) -> None:
        """SIGKILL workers, whoever it hits."""
        for _ in range(self._pace.kills):
            await self._pause(self._pace.kills)
            self._victim().send(signal.SIGKILL)

    async def freeze_workers(self) -> None:
        """SIGSTOP workers; their keeper thaws them once their leases have lapsed."""
        for _ in range(self._pace.freezes):
            await self._pause(self._pace.freezes)
            self._victim().send(signal.SIGSTOP)

    async def kill_postgres(self) -> None:
        """SIGKILL PostgreSQL and start it again."""
        postgres = self._system.postgres
        for _ in range(self._pace.postgres):
            await self._pause(self._pace.postgres)
            os.kill(postgres.pid, signal.SIGKILL)
            await postgres.ended()
            await postgres.start_again()
            [row] = await self._system.fetch(
                "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
            )
            self.toll.accepted.append(row["now"])

    async def kill_replicas(self) -> None:
        """SIGKILL what answers calls and start it again."""
        slots = [*self._system.gateways, *self._system.replicas]
        for _ in range(self._pace.replicas):
            await self._pause(self._pace.replicas)
            slot = self._chance.choice(slots)
            await slot.running.kill()
            await self._system.start_again(slot)
            self.toll.replica_kills += 1

    async def cut(self, proxy: Proxy, subscription: Subscription) -> None:
        """Cut a subscriber off, in one of the ways that networks have."""
        while subscription.cuts < self._pace.cuts:
            await self._pause(self._pace.cuts)
            while not proxy.open_connections:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            match self._chance.randrange(5):
                case 0:
                    proxy.hold()
                    await asyncio.sleep(self._chance.uniform(0.1, 0.5))
                    proxy.reset()
                    proxy.release()
                case 1:
                    proxy.lose_servers()
                    await asyncio.sleep(self._chance.uniform(0.1, 0.5))
                    proxy.reset()
                case _:
                    proxy.reset()
            subscription.cuts += 1

    async def watch(self) -> None:
        """Look again and again at which runs are held, until cancelled."""
        while True:
            with suppress(ServiceError):
                self.toll.held_together += await evidence.held_together(self._system)
                self.toll.samples += 1
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _victim(self) -> Process:
        running = [slot.running for slot in self._system.workers if slot.process]
        awake = [each for each in running if each.alive and not each.frozen.is_set()]
        return self._chance.choice(awake or running)

    async def _pause(self, times: int) -> None:
        mean = self._pace.seconds / (times + 1)
        await asyncio.sleep(mean * self._chance.uniform(0.5, 1.5))
