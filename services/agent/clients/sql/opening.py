"""Opens the databases that models may ask."""

import asyncio
from collections.abc import Sequence

import asyncpg

from services.agent.clients.sql.checks import UnsafeDatabaseError, read_identity
from services.agent.clients.sql.database import PostgresSqlDatabase
from services.agent.clients.sql.file import SqlSettings
from services.common.db import Pool, connection


async def open_databases(
    settings: Sequence[SqlSettings], own: Pool
) -> Sequence[PostgresSqlDatabase]:
    """The databases, each looked at; one that is down is looked at when it is asked.

    Args:
        settings: how they are reached.
        own: ChatMind's own database, which must not be among them.

    Raises:
        UnsafeDatabaseError: one is ChatMind's own, or its role can do more than read.
        ServiceError: ChatMind's own database cannot be used.
    """
    if not settings:
        return ()
    try:
        async with connection(own) as lent:
            identity = await read_identity(lent)
    except asyncpg.PostgresError as error:
        raise UnsafeDatabaseError(
            "databases: they cannot be told from ChatMind's own database, as its role may not call "
            "pg_control_system()"
        ) from error
    databases = [PostgresSqlDatabase(each, own=identity) for each in settings]
    await asyncio.gather(*(database.read() for database in databases))
    return databases
