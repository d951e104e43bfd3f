"""Gateways are replaced one after the other while users call; nobody may notice."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from grpc import aio

from services.common.tasks import background_tasks
from tests.chaos import mutations
from tests.chaos.clients import Clients, Door, any_gateway
from tests.chaos.system import Slot, System, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALLERS = 16
ROUNDS = 2
TRIES = 10


async def replace_all(system: System, clients: Clients, **environment: str) -> Counter[str]:
    """Replace each gateway again and again under load; gives how the calls ended."""
    run_id = (await clients.submit(await clients.open_session(), "restart")).run_id
    endings: Counter[str] = Counter()

    async def call_on(door: Door) -> None:
        while True:
            try:
                await door.get_run(run_id)
            except aio.AioRpcError as error:
                endings[error.code().name] += 1
            else:
                endings["OK"] += 1

    async with any_gateway(system) as door, background_tasks() as tasks:
        await door.get_run(run_id)
        for number in range(CALLERS):
            tasks.start(f"caller {number}", call_on(door))
        for gateway in system.gateways * ROUNDS:
            await until(lambda: answers(gateway))  # noqa: B023 - awaited here
            await gateway.running.stop()
            gateway.running.log.unlink()
            await gateway.start(**environment)
            await until(lambda: answers(gateway))  # noqa: B023
    return endings


async def answers(gateway: Slot) -> bool:
    """Whether calls reach a gateway."""
    log = gateway.running.log
    return log.exists() and log.read_text("utf-8").count("GetRun") > CALLERS


async def test_no_call_fails(system: System, clients: Clients) -> None:
    """T-S8 in small: SIGTERM of each gateway in turn, while calls go on."""
    endings = await replace_all(system, clients)

    assert set(endings) == {"OK"}
    assert endings["OK"] > CALLERS * len(system.gateways) * ROUNDS


@pytest_asyncio.fixture(loop_scope="session")
async def undrained(system: System) -> AsyncIterator[dict[str, str]]:
    """The gateways without their drain, until the end of the test; gives what makes them so."""
    without = {mutations.VARIABLE: "drain", "CHATMIND_GATEWAY_DRAIN_SECONDS": "0"}
    await replaced(system, **without)
    yield without
    await replaced(system)


async def replaced(system: System, **environment: str) -> None:
    """Replace all gateways while nobody calls."""
    for gateway in system.gateways:
        await gateway.running.stop()
        await gateway.start(**environment)
        await system.serving(gateway)


async def test_without_the_drain_the_suite_goes_red(
    system: System, clients: Clients, undrained: dict[str, str]
) -> None:
    """Gateways that stop without saying so first make calls fail, if not at each stop."""
    endings: Counter[str] = Counter()
    for _ in range(TRIES):
        endings += await replace_all(system, clients, **undrained)
        if endings.total() > endings["OK"]:
            break

    assert endings.total() > endings["OK"]
