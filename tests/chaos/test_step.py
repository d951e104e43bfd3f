"""A worker is killed at each point of a step, and another one goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import open_clients
from tests.chaos.failpoints import POINTS, REACHED
from tests.chaos.history import History, MessageRow
from tests.chaos.system import ENOUGH, System

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The call was announced and has no result yet: nobody can know whether it had its effect.
UNKNOWN_AFTER = {"announce.after", "tool.before", "tool.after", "result.before"}
PAID_BY_THEN = {"tool.after", "result.before"}
ASKED_TWICE_AFTER = {"model.after", "reply.before"}
LONG_LEASE = {"CHATMIND_AGENT_LEASE_SECONDS": "60", "CHATMIND_AGENT_RUNS_AT_ONCE": "1"}


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is found after one worker was killed at each point.

    Attributes:
        history: of all.
        killed: the run that lost its worker at a point.
        asked: how often the model was asked the first question of a run.
    """

    history: History
    killed: dict[str, str]
    asked: dict[str, int]

    def paid(self, point: str) -> int:
        """How often the payment of a run was made."""
        call = (self.killed[point], "pay-0-0")
        return sum(effect.call == call for effect in self.history.effects)

    def result(self, point: str) -> MessageRow:
        """What the model and the user are told of the payment."""
        run_id = self.killed[point]
        [row] = [
            row
            for row in self.history.messages
            if row.run_id == run_id and row.call_id == "pay-0-0"
        ]
        return row


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def aftermath(shared_system: System) -> AsyncIterator[Aftermath]:
    """Twelve runs, twelve workers, each killed at another point; then one that goes on."""
    system = shared_system
    await system.start_afresh()
    async with open_clients(system) as clients, asyncio.timeout(ENOUGH):
        for number in range(len(POINTS)):
            await clients.submit(await clients.open_session(), f"t{number} pay look")
        for slot, point in zip(system.workers, POINTS, strict=True):
            await slot.start_armed(f"{point}=kill@1", **LONG_LEASE)
        for slot in system.workers:
            await slot.running.ended.wait()
        await system.let_leases_lapse()
        await system.workers[0].start()
        assert await evidence.all_ended(system)
        history = await evidence.history(system, clients.submits)
    # Replicas that other tests killed have their points in the log too, outside of any run.
    reached = [told for told in system.logged(REACHED) if told["point"] in POINTS]
    killed = {told["point"]: told["run_id"] for told in reached}
    labels = {submit.run_id: submit.text.split()[0] for submit in clients.submits}
    asked = {run_id: system.model.asked[label, 0] for run_id, label in labels.items()}
    yield Aftermath(history, killed, asked)
    await system.kill_workers()


async def test_every_point_was_reached(aftermath: Aftermath) -> None:
    """T-D6: each worker died at its own point, with a run of its own."""
    assert set(aftermath.killed) == set(POINTS)
    assert len(set(aftermath.killed.values())) == len(POINTS)


async def test_every_promise_is_kept(aftermath: Aftermath) -> None:
    """T-D6: I5 and I6 hold, and all others."""
    assert violations(aftermath.history) == []


@pytest.mark.parametrize("point", POINTS)
class TestKilled:
    """T-D6: kill -9 at twelve points of a step."""

    async def test_what_may_have_been_done_is_told_to_be_unknown(
        self, aftermath: Aftermath, point: str
    ) -> None:
        expected = "unknown_outcome" if point in UNKNOWN_AFTER else None

        assert aftermath.result(point).error == expected

    async def test_nothing_that_must_not_be_is_repeated(
        self, aftermath: Aftermath, point: str
    ) -> None:
        never = point in UNKNOWN_AFTER - PAID_BY_THEN

        assert aftermath.paid(point) == (0 if never else 1)

    async def test_the_model_is_asked_again_only_for_what_got_lost(
        self, aftermath: Aftermath, point: str
    ) -> None:
        assert aftermath.asked[aftermath.killed[point]] == (2 if point in ASKED_TWICE_AFTER else 1)

    async def test_the_crash_is_counted_unless_the_run_had_ended(
        self, aftermath: Aftermath, point: str
    ) -> None:
        [run] = [run for run in aftermath.history.runs if run.id == aftermath.killed[point]]

        assert run.crashes == (0 if point == "finish.after" else 1)
