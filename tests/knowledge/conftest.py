"""What the knowledge service's tests share."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contracts.knowledge_stores import emptied, knowledge_database
from tests.knowledge.system import Caller, System, Team, open_system

__all__ = ["knowledge_database"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_system(
    tmp_path_factory: pytest.TempPathFactory, knowledge_database: str
) -> AsyncIterator[System]:
    """A knowledge service for all tests of a module, and the embedding service behind it."""
    await emptied(knowledge_database)
    async with open_system(tmp_path_factory.mktemp("system"), knowledge_database) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def system(shared_system: System) -> System:
    """The same, with its embedding service as new; its data belong to other tests' tenants.

    Tests that use it are marked with `asyncio(loop_scope="module")`.
    """
    shared_system.embedding.reset()
    return shared_system


@pytest.fixture
def team(system: System) -> Team:
    """Users that have nothing yet."""
    return system.team()


@pytest.fixture
def alice(team: Team) -> Caller:
    """A user that has nothing yet."""
    return team.alice


@pytest.fixture
async def own_database(knowledge_database: str) -> str:
    """The address of a database with nothing in it, for a system of the test's own."""
    return await emptied(knowledge_database)
