"""What the contract suites share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from services.common.db import open_pool
from tests.agent.database import empty, shared_database
from tests.conftest import PostgresServer
from tests.contracts.agent_stores import (
    Stores,
    agent_pool,
    memory_stores,
    postgres_stores,
    together_stores,
)
from tests.pgbouncer import PgBouncer, pgbouncer


@pytest.fixture(scope="session")
def pooler(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PgBouncer]:
    """T-P3: a pooler in transaction mode, through which the suites run as well."""
    with pgbouncer(postgres_server.dsn("postgres"), tmp_path_factory.mktemp("pooler")) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def agent_database(postgres_server: object) -> Iterator[str]:
    """The address of a database for all tests of the agent's stores."""
    with shared_database(postgres_server) as dsn:
        yield dsn


@pytest.fixture
def memory_agent_stores() -> Stores:
    """Fresh stores in memory."""
    return memory_stores()


@pytest.fixture
async def postgres_agent_stores(agent_database: str) -> AsyncIterator[Stores]:
    """Stores in PostgreSQL that hold nothing yet."""
    async with agent_pool(await empty(agent_database)) as pool, together_stores(pool) as stores:
        yield stores


@pytest.fixture
async def pooled_agent_stores(agent_database: str, pooler: PgBouncer) -> AsyncIterator[Stores]:
    """The same by way of a pooler."""
    dsn = pooler.dsn(await empty(agent_database))
    async with open_pool(dsn, schema="agent", application_name="test", pooled=True) as pool:
        yield postgres_stores(pool)


@pytest.fixture(params=["memory", "postgres", "pooled"])
def stores(request: pytest.FixtureRequest) -> Stores:
    """The agent's stores, of each kind in turn."""
    stores: Stores = request.getfixturevalue(f"{request.param}_agent_stores")
    return stores
