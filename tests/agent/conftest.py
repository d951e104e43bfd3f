"""What the agent service's tests share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.agent.database import empty, shared_database
from tests.agent.running import RunningAgent, running


@pytest.fixture(scope="session")
def kept_database(postgres_server: object) -> Iterator[str]:
    """The address of a database for all tests here."""
    with shared_database(postgres_server) as dsn:
        yield dsn


@pytest.fixture
async def empty_tables(kept_database: str) -> str:
    """The address of that database, its tables empty."""
    return await empty(kept_database)


@pytest.fixture
async def service(tmp_path: Path, empty_tables: str) -> AsyncIterator[RunningAgent]:
    """A service that answers and works."""
    async with running(tmp_path, empty_tables) as service:
        yield service


@pytest.fixture
async def api(tmp_path: Path, empty_tables: str) -> AsyncIterator[RunningAgent]:
    """A service that answers, while nobody works."""
    async with running(tmp_path, empty_tables, role="api") as service:
        yield service
