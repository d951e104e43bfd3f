"""A run that takes its worker down is given up, and takes nobody else with it."""

import pytest

from services.common.tasks import background_tasks
from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import Clients
from tests.chaos.system import System
from tests.chaos.tools import TOOL_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHERS = 5
CRASH_LIMIT = 5
SLOW = {TOOL_SECONDS: "0.2", "CHATMIND_AGENT_LEASE_SECONDS": "60"}


async def keep_one_worker(system: System) -> None:
    """Start a worker again whenever it has died, and let the leases of the dead lapse at once."""
    while True:
        process = await system.workers[0].start(**SLOW)
        await process.ended.wait()
        await system.let_leases_lapse()


async def test_it_is_given_up_after_five_workers_and_the_others_complete(
    system: System, clients: Clients
) -> None:
    """T-D11: a tool that calls os._exit, among runs that are slower than it."""
    for number in range(OTHERS):
        await clients.submit(await clients.open_session(), f"other{number} look look")
    await clients.submit(await clients.open_session(), "poison die")

    async with background_tasks() as tasks:
        tasks.start("worker", keep_one_worker(system))
        ended = await evidence.all_ended(system)

    history = await evidence.history(system, clients.submits)
    *others, poison = (
        run for submit in clients.submits for run in history.runs if run.id == submit.run_id
    )
    assert ended
    assert (poison.state, poison.stop_reason) == ("error", "crash_loop")
    assert poison.crashes == CRASH_LIMIT
    assert [run.stop_reason for run in others] == ["end_turn"] * OTHERS
    assert violations(history) == []


async def test_its_session_goes_on(system: System, clients: Clients) -> None:
    """T-D11: what was said after it is answered."""
    session_id = await clients.open_session()
    for text in ("poison die", "after look"):
        await clients.submit(session_id, text)

    async with background_tasks() as tasks:
        tasks.start("worker", keep_one_worker(system))
        assert await evidence.all_ended(system)

    history = await evidence.history(system, clients.submits)
    assert [run.stop_reason for run in history.runs] == ["crash_loop", "end_turn"]
    assert violations(history) == []
