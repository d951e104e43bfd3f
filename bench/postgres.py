"""A PostgreSQL for measurements, with its own defaults: every commit is on disk when it returns."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from cli.local.postgres import EmbeddedPostgres

SHOWN = ("server_version", "fsync", "synchronous_commit", "max_connections")


@asynccontextmanager
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A server for as long as the block lasts.

    Where there are several cores it has the last one, and this process the others: neither takes
    time from the other.
    """
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        # What a process may run on is inherited by its children.
        os.sched_setaffinity(0, cores[-1:])
        async with EmbeddedPostgres(Path(folder)) as server:
            os.sched_setaffinity(0, cores[:-1] or cores)
            try:
                yield server
            finally:
                os.sched_setaffinity(0, cores)


async def settings(dsn: str) -> str:
    """The server's settings that matter, in a line."""
    session = await asyncpg.connect(dsn)
    try:
        shown = [f"{name} {await session.fetchval(f'SHOW {name}')}" for name in SHOWN]
    finally:
        await session.close()
    return f"PostgreSQL: {', '.join(shown)}"
