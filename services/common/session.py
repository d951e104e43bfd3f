"""Database connections outside any pool: for LISTEN, NOTIFY and migrations."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import structlog

from services.common.db_errors import driver_errors, session_errors, unreachable
from services.common.errors import UnavailableError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
"""A connection outside any pool."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
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


async def keep_session(
    dsn: str,
    use: Callable[[Connection], Awaitable[None]],
    *,
    application_name: str,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run `use` on a direct connection, and again on a new one after every loss, until cancelled.

    The pauses between attempts grow and are jittered; after a session that lasted they start over.

    Args:
        dsn: a direct address of the database, not a pooler's.
        use: works with the connection, and raises UnavailableError when it is lost.
        application_name: shown in the server's activity view.
        settings: server settings of the session.

    Raises:
        Exception: whatever else `use` raises, or why the database refuses us for good.
    """
    log = structlog.get_logger("session").bind(application_name=application_name)
    clock = asyncio.get_running_loop().time
    pause = _FIRST_PAUSE
    while True:
        began = clock()
        try:
            async with open_connection(
                dsn, application_name=application_name, settings=settings
            ) as session:
                await use(session)
        except UnavailableError as error:
            log.warning("session lost", cause=repr(error.__cause__))
        if clock() - began > _LONGEST_PAUSE:
            pause = _FIRST_PAUSE
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _hang_up(opened: Connection) -> None:
    try:
        await opened.close(timeout=_CLOSE_GRACE)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        opened.terminate()
