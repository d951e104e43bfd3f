"""A database that many tests share, one after the other, each finding the agent's tables empty."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import asyncpg

_TEMPLATE = "chatmind_template"
_EMPTY = """
DO $$ BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(format('agent.%I', tablename), ', ')
        FROM pg_tables WHERE schemaname = 'agent' AND tablename <> 'schema_migration');
END $$
"""


@contextmanager
def shared_database(server: Any) -> Iterator[str]:
    """The address of a database on a `tests.conftest.PostgresServer`."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opened = server.database(template=_TEMPLATE)
        yield runner.run(stack.enter_async_context(opened))
        runner.run(stack.aclose())


async def empty(dsn: str) -> str:
    """Empty the agent's tables; gives the address again."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()
    return dsn
