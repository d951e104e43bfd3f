"""PostgreSQL for tests: one server per process, one migrated template, one database per test.

With `CHATMIND_TEST_POSTGRES=container` the server is a container of `pgvector/pgvector`; otherwise
it is the embedded one. Under pytest-xdist each worker has a server of its own.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from cli.local.postgres import EmbeddedPostgres
from services.common.migrate import load_migrations, migrate

_SERVICES = Path(__file__).parent.parent / "services"
_TEMPLATE = "chatmind_template"
_UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A PostgreSQL server that belongs to the tests of this process.

    Attributes:
        base_dsn: its address up to the slash before the database's name, superuser included.
    """

    base_dsn: str

    def dsn(self, database: str) -> str:
        """The address of one of its databases."""
        return f"{self.base_dsn}/{database}?sslmode=disable"

    @asynccontextmanager
    async def database(self, *, template: str = "template0") -> AsyncIterator[str]:
        """A database, copied from `template`, that is gone after the block; gives its address."""
        name = f"test_{secrets.token_hex(6)}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.dsn(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def execute(self, statement: str) -> None:
        """Run one statement as superuser, outside any test's database."""
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The server, with a template database in which every service's migrations were applied."""
    data_dir = tmp_path_factory.mktemp("postgres")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            base_dsn = runner.run(_start(stack, data_dir))
            server = PostgresServer(base_dsn)
            runner.run(_make_template(server))
            yield server
        finally:
            runner.run(stack.aclose())


@pytest.fixture
async def database(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The address of a fresh database with every service's schema, for this test alone."""
    async with postgres_server.database(template=_TEMPLATE) as dsn:
        yield dsn


@pytest.fixture
async def empty_database(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The address of a fresh database without any schema of ours, for this test alone."""
    async with postgres_server.database() as dsn:
        yield dsn


async def _start(stack: AsyncExitStack, data_dir: Path) -> str:
    if os.environ.get("CHATMIND_TEST_POSTGRES") == "container":
        return _start_container(stack)
    embedded = EmbeddedPostgres(data_dir, settings=_UNSAFE_BUT_FAST)
    await stack.enter_async_context(embedded)
    return embedded.dsn("").partition("/?")[0]


def _start_container(stack: AsyncExitStack) -> str:
    if not ("DOCKER_HOST" in os.environ or Path("/var/run/docker.sock").is_socket()):
        pytest.fail(
            "CHATMIND_TEST_POSTGRES=container, but there is no Docker engine", pytrace=False
        )
    from testcontainers.community.postgres import PostgresContainer

    container = stack.enter_context(PostgresContainer("pgvector/pgvector:pg18", driver=None))
    return str(container.get_connection_url()).rpartition("/")[0]


async def _make_template(server: PostgresServer) -> None:
    await server.execute(f"CREATE DATABASE {_TEMPLATE}")
    for folder in sorted(_SERVICES.glob("*/store/migrations")):
        schema = folder.parent.parent.name
        await migrate(server.dsn(_TEMPLATE), load_migrations(folder), schema=schema)
