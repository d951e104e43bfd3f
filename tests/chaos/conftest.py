"""One system for the tests here, in real processes; campaigns have their own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.clients import Clients, open_clients
from tests.chaos.system import Size, System, open_system

SIZE = Size(workers=12, gateways=2, lease=1.0, poll=0.2, crash_limit=5)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """The system, for all tests here."""
    async with open_system(tmp_path_factory.mktemp("chaos"), SIZE) as system:
        yield system


@pytest_asyncio.fixture(loop_scope="session")
async def system(shared_system: System) -> AsyncIterator[System]:
    """The system as if it had just been started; nobody works yet."""
    await shared_system.start_afresh()
    yield shared_system
    await shared_system.kill_workers()


@pytest_asyncio.fixture(loop_scope="session")
async def clients(system: System) -> AsyncIterator[Clients]:
    """Users of the system, who come in through its first gateway."""
    async with open_clients(system) as clients:
        yield Clients(clients.doors[:1])
