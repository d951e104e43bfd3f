"""One campaign: users at work while everything breaks, then healing, then the reckoning."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from chatmind.gateway.v1 import gateway_service_pb2
from grpc import aio

from services.common.tasks import BackgroundTasks, background_tasks, task_group
from tests.chaos import evidence
from tests.chaos.agent import FENCED
from tests.chaos.checker import Violation, violations
from tests.chaos.clients import Clients, follow, open_clients, open_door
from tests.chaos.figures import Figures, costly, slowest_resume, vacuous, wasted
from tests.chaos.history import History, Outcome, Subscription
from tests.chaos.nemesis import Nemesis, Pace
from tests.chaos.system import ENOUGH, Size, System, open_system
from tests.faults.proxy import Proxy

_PROBES = 200
# Of a hundred messages, so many are followed by another before they can be answered, and so many
# are thought better of.
_FOLLOWED, _CANCELLED = 10, 4
_MODES = (
    gateway_service_pb2.WHEN_BUSY_REJECT,
    gateway_service_pb2.WHEN_BUSY_INTERRUPT,
    gateway_service_pb2.WHEN_BUSY_ROLLBACK,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign does.

    Attributes:
        size: of the system.
        sessions: how many.
        runs: of each session, one after another.
        script: the tools of each step of a run.
        subscribers: how many sessions are followed.
        pace: how often what is broken.
        least: figures that must be reached, or nothing was proved.
        patience: seconds after healing by which all must have ended.
    """

    size: Size
    sessions: int
    runs: int
    script: str
    subscribers: int
    pace: Pace
    least: Mapping[str, int]
    patience: float = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of it.

    Attributes:
        figures: what it did and cost.
        history: what happened.
        violations: what was promised and not kept.
    """

    figures: Figures
    history: History
    violations: Sequence[Violation]


async def carry_out(plan: Plan, folder: Path, *, seed: int) -> Result:
    """Carry a campaign out, in a folder of its own."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        system = await stack.enter_async_context(open_system(folder, plan.size))
        clients = await stack.enter_async_context(open_clients(system))
        tasks = await stack.enter_async_context(background_tasks())
        campaign = _Campaign(plan, system, clients, tasks, random.Random(seed))
        await campaign.prepare()
        await campaign.rage()
        stuck = await campaign.heal()
        probes_ok = await campaign.probe()
        history = await campaign.history(stuck)
        committed = await evidence.committed(system)
        figures = campaign.figures(history, probes_ok, committed, time.monotonic() - began)
    found = [*violations(history), *vacuous(figures, plan.least), *costly(figures)]
    return Result(figures, history, found)


class _Campaign:
    def __init__(
        self,
        plan: Plan,
        system: System,
        clients: Clients,
        tasks: BackgroundTasks,
        chance: random.Random,
    ) -> None:
        self._plan = plan
        self._system = system
        self._clients = clients
        self._tasks = tasks
        self._chance = chance
        self._nemesis = Nemesis(system, plan.pace, chance=chance)
        self._session_ids: list[str] = []
        self._subscriptions: list[Subscription] = []
        self._proxies: list[Proxy] = []

    async def prepare(self) -> None:
        """Make an agent and the sessions, and start those who work and those who watch."""
        door = self._clients.doors[0]
        agent_id = await door.create_agent()
        for _ in range(self._plan.sessions):
            self._session_ids.append(await door.create_session(agent_id))
        for number, session_id in enumerate(self._session_ids[: self._plan.subscribers]):
            subscription = Subscription(f"subscriber-{number}", session_id)
            self._subscriptions.append(subscription)
            gateway = self._system.gateways[number % len(self._system.gateways)]
            proxy = Proxy(gateway.address)
            await proxy.listen()
            self._proxies.append(proxy)
            self._tasks.start(subscription.name, self._subscribe(subscription, proxy))
        for slot in self._system.workers:
            self._tasks.start(f"keep {slot.name}", self._nemesis.keep(slot))
        self._tasks.start("watch", self._nemesis.watch())

    async def rage(self) -> None:
        """Break things while users send; returns once all has been broken and sent."""
        nemesis = self._nemesis
        async with task_group() as group:
            group.create_task(nemesis.kill_workers())
            group.create_task(nemesis.freeze_workers())
            group.create_task(nemesis.kill_postgres())
            group.create_task(nemesis.kill_replicas())
            for proxy, subscription in zip(self._proxies, self._subscriptions, strict=True):
                group.create_task(nemesis.cut(proxy, subscription))
            group.create_task(self._send_all())

    async def heal(self) -> list[str]:
        """Leave all in peace until it has ended; gives what was left lying in the meantime."""
        self._nemesis.healing.set()
        for slot in self._system.workers:
            await slot.running.kill()
        lease = self._plan.size.lease
        await asyncio.sleep(2 * lease + self._plan.size.poll)
        stuck = await evidence.stuck(self._system, lease=lease)
        await evidence.all_ended(self._system, within=self._plan.patience)
        await self._all_delivered()
        return stuck

    async def probe(self) -> int:
        """Call what should answer now; gives how often it did."""
        answers = 0
        accepted = [submit.run_id for submit in self._clients.submits if submit.run_id]
        for number in range(_PROBES):
            door = self._clients.doors[number % len(self._clients.doors)]
            run_id = accepted[number % len(accepted)]
            try:
                await door.get_run(run_id)
            except aio.AioRpcError:
                continue
            answers += 1
        return answers

    async def history(self, stuck: Sequence[str]) -> History:
        """All that is known now."""
        return replace(
            await evidence.history(self._system, self._clients.submits),
            subscriptions=self._subscriptions,
            held_together=self._nemesis.toll.held_together,
            stuck=stuck,
        )

    def figures(
        self, history: History, probes_ok: int, committed: Sequence[float], seconds: float
    ) -> Figures:
        """What it did and cost."""
        toll, results = self._nemesis.toll, [row for row in history.messages if row.call_id]
        asked = self._system.model.asked
        return Figures(
            runs=sum(submit.outcome is Outcome.OK for submit in history.submits),
            messages=len(history.messages),
            kills=toll.kills,
            crashes=sum(run.crashes for run in history.runs),
            freezes=toll.freezes,
            fenced=len(self._system.logged(FENCED)),
            replica_kills=toll.replica_kills,
            postgres_kills=len(toll.accepted),
            subscribers=len(history.subscriptions),
            fewest_cuts=min((each.cuts for each in history.subscriptions), default=0),
            tool_calls=len(results),
            unknown_calls=sum(row.error == "unknown_outcome" for row in results),
            refused=sum(submit.outcome is Outcome.FAIL for submit in history.submits),
            cancelled=sum(run.stop_reason == "cancelled" for run in history.runs),
            interrupted=sum(run.stop_reason == "interrupted" for run in history.runs),
            model_calls=len(asked),
            wasted_calls=wasted(asked),
            probes=_PROBES,
            probes_ok=probes_ok,
            samples=toll.samples,
            slowest_resume=slowest_resume(toll.accepted, committed),
            seconds=seconds,
        )

    async def _subscribe(self, subscription: Subscription, proxy: Proxy) -> None:
        try:
            async with open_door(proxy.address, self._system) as door:
                await follow(door, subscription)
        finally:
            await proxy.close()

    async def _send_all(self) -> None:
        """Send every session its messages in turn, over the time in which things are broken."""
        total = self._plan.sessions * self._plan.runs
        async with task_group() as group:
            for number in range(total):
                session_id = self._session_ids[number % self._plan.sessions]
                group.create_task(self._send(session_id, number))
                await asyncio.sleep(self._plan.pace.seconds / total)

    async def _send(self, session_id: str, number: int) -> None:
        """Send a message, and now and then meddle with its run a moment later."""
        text = f"r{number} {self._plan.script}"
        submit = await self._clients.submit(session_id, text)
        meddling, moment = self._chance.randrange(100), self._chance.uniform(0, 1)
        if meddling < _FOLLOWED:
            await asyncio.sleep(moment)
            mode = _MODES[meddling % len(_MODES)]
            text = f"r{number}-again {self._plan.script}"
            await self._clients.submit(session_id, text, when_busy=mode)
        elif meddling < _FOLLOWED + _CANCELLED and submit.outcome is Outcome.OK:
            await asyncio.sleep(moment)
            await self._clients.cancel(submit.run_id)

    async def _all_delivered(self) -> None:
        """Wait until each subscriber has as many messages as its session, if it ever has."""
        until = time.monotonic() + ENOUGH
        last: dict[str, int] = {}
        for row in await evidence.messages(self._system):
            last[row.session_id] = max(row.sequence, last.get(row.session_id, 0))
        while time.monotonic() < until:
            if all(each.last >= last[each.session_id] for each in self._subscriptions):
                return
            await asyncio.sleep(0.05)
