"""Brings a service's schema up to date from numbered SQL files.

The files `0001_name.sql`, `0002_…` are applied in order, each in a transaction of its own together
with the row in `<schema>.schema_migration` that records its hash. Once applied, a file is never
edited or removed; both are refused. A database that is ahead of the files belongs to a newer
release: then nothing is done, so that going back one release stays possible.

Names in a file mean the service's schema; an extension, which all share, is created with `SCHEMA
public`. Files hold plain statements, without transaction control.

A file whose first line is `-- no transaction` holds one statement that cannot run in one, such as
CREATE INDEX CONCURRENTLY on a table that grows large. If it is interrupted it runs again; an index
that it left invalid is dropped first. It may wait as long as it needs to: it holds up nobody.

Migrations need a direct connection, not a pooler's: the advisory lock belongs to the session.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import structlog

from services.common.backoff import jittered
from services.common.db import Pool, connection, identifier
from services.common.db_errors import driver_errors
from services.common.errors import AbortedError, StartupError, UnavailableError
from services.common.session import Connection, open_connection

_LOCK = 0x6368_6174_6D69_6E64  # one for all schemas of a database, since they share extensions
_LOST_A_LOCK = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_POLL = 0.1
_LOCK_PAUSE = 0.5
_NO_TRANSACTION = "-- no transaction"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_SCHEMA_EXISTS = "SELECT to_regnamespace($1) IS NOT NULL"
_RECORD_EXISTS = "SELECT to_regclass($1) IS NOT NULL"
_CREATE_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    apply_time timestamptz NOT NULL DEFAULT now()
)
"""
_APPLIED = "SELECT number, name, digest FROM schema_migration ORDER BY number"
# A partitioned index is invalid until all its parts are there, and is nobody's left-over.
_INVALID_INDEXES = """
SELECT quote_ident(relname) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE NOT indisvalid AND relkind = 'i' AND relnamespace = current_schema()::regnamespace
"""
_RECORD = "INSERT INTO schema_migration (number, name, digest) VALUES ($1, $2, $3)"


class MigrationError(StartupError):
    """The files and the database do not match, or a file cannot be applied."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file.

    Attributes:
        number: its position, counted from 1.
        name: the file's name.
        sql: its text.
    """

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        """Whether it runs in a transaction, together with its record."""
        return self.sql.partition("\n")[0].strip() != _NO_TRANSACTION


def load_migrations(folder: Path) -> tuple[Migration, ...]:
    """The migrations in `folder`, in order.

    Raises:
        MigrationError: a name is malformed, or the numbers are not 1, 2, 3 …
    """
    files = sorted(folder.glob("*.sql"))
    for place, file in enumerate(files, start=1):
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            raise MigrationError(f"{file.name}: a migration is named like 0001_agents.sql")
        if int(match[1]) != place:
            raise MigrationError(f"{file.name}: migration {place:04} is missing or there twice")
    return tuple(
        Migration(place, file.name, file.read_text(encoding="utf-8"))
        for place, file in enumerate(files, start=1)
    )


async def migrate(
    dsn: str,
    migrations: Sequence[Migration],
    *,
    schema: str,
    lock_timeout: float = 1.0,
    timeout: float = 300.0,  # noqa: ASYNC109
) -> tuple[Migration, ...]:
    """Apply the missing migrations, and return them. Can run many times, even at the same time.

    Args:
        dsn: address of the database, with the rights of the schema's owner.
        migrations: all migrations of the service, from `load_migrations`.
        schema: the service's schema, which is created if absent.
        lock_timeout: seconds that a migration waits for a table before it lets other transactions
            pass and tries again; those that come meanwhile wait behind it.
        timeout: seconds for the wait for another run, and for each file; one that runs outside a
            transaction may take longer.

    Raises:
        MigrationError: an applied file was edited or removed, or a file cannot be applied.
        UnavailableError: the database cannot be reached, or the time is up.
    """
    with driver_errors():
        async with (
            asyncio.timeout(timeout) as limit,
            _alone(dsn, lock_timeout=lock_timeout) as session,
        ):
            await _enter(session, schema)
            missing = _missing(migrations, await session.fetch(_APPLIED))
            for migration in missing:
                limit.reschedule(_deadline(timeout) if migration.in_transaction else None)
                await _apply(session, migration)
            return missing


async def pending(pool: Pool, migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """The migrations that the pool's schema still lacks.

    Raises:
        MigrationError: an applied file was edited or removed.
        ServiceError: as `db.connection` does.
    """
    async with connection(pool) as lent:
        if not await lent.fetchval(_RECORD_EXISTS, f"{identifier(pool.schema)}.schema_migration"):
            return tuple(migrations)
        return _missing(migrations, await lent.fetch(_APPLIED))


async def wait_until_current(
    pool: Pool,
    migrations: Sequence[Migration],
    *,
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Wait until another process has applied all migrations.

    Raises:
        UnavailableError: that did not happen within `timeout` seconds.
        ServiceError: as `pending` does.
    """
    try:
        async with asyncio.timeout(timeout):
            while await pending(pool, migrations):  # noqa: ASYNC110
                await asyncio.sleep(_POLL)
    except TimeoutError as error:
        raise UnavailableError(f"The schema {pool.schema} is not up to date.") from error


def _missing(
    migrations: Sequence[Migration], applied: Sequence[asyncpg.Record]
) -> tuple[Migration, ...]:
    for migration, row in zip(migrations, applied, strict=False):
        was = (row["number"], row["name"], row["digest"])
        if (migration.number, migration.name, migration.digest) != was:
            raise MigrationError(
                f"{migration.name} is not what was applied as {row['name']}: "
                "an applied migration is never changed, a new one is added"
            )
    return tuple(migrations[len(applied) :])


@asynccontextmanager
async def _alone(dsn: str, *, lock_timeout: float) -> AsyncIterator[Connection]:
    settings = {
        "lock_timeout": f"{lock_timeout * 1000:.0f}ms",
        "statement_timeout": "0",
        # Otherwise a killed process keeps its lock until its statement has run to the end.
        "client_connection_check_interval": "1s",
    }
    name = "chatmind-migrate"
    async with open_connection(dsn, application_name=name, settings=settings) as session:
        # Waiting inside a statement would hold a snapshot, for which concurrent index builds wait.
        while not await session.fetchval(_TRY_LOCK, _LOCK):  # noqa: ASYNC110
            await asyncio.sleep(jittered(_POLL))
        yield session


async def _enter(session: Connection, schema: str) -> None:
    quoted = identifier(schema)
    if not await session.fetchval(_SCHEMA_EXISTS, quoted):
        await session.execute(f"CREATE SCHEMA {quoted}")
    await session.execute(f"SET search_path = {quoted}, public")
    await session.execute(_CREATE_RECORD)


async def _apply(session: Connection, migration: Migration) -> None:
    log = structlog.get_logger("migrate").bind(migration=migration.name)
    while True:
        try:
            with driver_errors():
                await _attempt(session, migration)
        except (UnavailableError, AbortedError) as error:
            if not isinstance(error.__cause__, _LOST_A_LOCK):
                raise
            log.info("migration waits for locks and tries again")
            await asyncio.sleep(jittered(_LOCK_PAUSE))
        except asyncpg.PostgresError as error:
            log.exception("migration failed")
            raise MigrationError(f"{migration.name} cannot be applied; see the log.") from error
        else:
            log.info("migration applied")
            return


async def _attempt(session: Connection, migration: Migration) -> None:
    if not migration.in_transaction:
        await _attempt_outside(session, migration)
        return
    async with session.transaction():
        await session.execute(migration.sql)
        await _record(session, migration)


async def _attempt_outside(session: Connection, migration: Migration) -> None:
    await session.execute("SET lock_timeout = 0")
    for row in await session.fetch(_INVALID_INDEXES):
        await session.execute(f"DROP INDEX CONCURRENTLY {row[0]}")
    await session.execute(migration.sql)
    await session.execute("RESET lock_timeout")
    await _record(session, migration)


async def _record(session: Connection, migration: Migration) -> None:
    await session.execute(_RECORD, migration.number, migration.name, migration.digest)


def _deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
