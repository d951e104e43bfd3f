"""Database connections outside any pool: for the bus and for migrations."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from services.common.db_errors import driver_errors, session_errors, unreachable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
"""A connection outside any pool."""

_CLOSE_GRACE = 5.0


@asynccontextmanager
async def open_connection(
    dsn: str,
    *,
    application_name: str,
    settings: Mapping[str, str] | None = None,
    timeout: float = 5.0,  # noqa: ASYNC109
) -> AsyncIterator[Connection]:
    """A connection for as long as the block lasts.

    Raises:
        UnavailableError: the database cannot be reached within `timeout` seconds, or was lost.
    """
    try:
        with driver_errors():
            opened = await asyncpg.connect(
                dsn,
                timeout=timeout,
                server_settings={"application_name": application_name, **(settings or {})},
            )
    except OSError as error:
        raise unreachable() from error
    try:
        with session_errors(opened):
            yield opened
    finally:
        await _hang_up(opened)


async def _hang_up(opened: Connection) -> None:
    try:
        await opened.close(timeout=_CLOSE_GRACE)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        opened.terminate()
