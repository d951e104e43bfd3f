"""PostgreSQL over asyncpg: a pool with limits, transactions, and errors that callers may see.

Nothing is kept in a session between two uses, so a pooler in transaction mode may stand between:
then pass `statement_cache_size=0` and let the roles carry the settings that it drops.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from services.common.db_errors import RETRY_AFTER, driver_errors, session_errors, unreachable
from services.common.errors import ResourceExhaustedError, UnavailableError
from services.common.session import Connection

PooledConnection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
"""A connection on loan from a pool."""

DriverPool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
"""The driver's own pool."""

Isolation = Literal["read_committed", "repeatable_read", "serializable"]

_CLOSE_GRACE = 5.0
_SET_STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', $1, true)"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds.

    Attributes:
        statement: one statement, on the server.
        lock: waiting for one lock.
        idle_in_transaction: a transaction in which nothing happens.
        acquire: waiting for a connection of the pool.
        connect: making a connection.
        answer_margin: added to `statement`, how long to wait for an answer from the server.
    """

    statement: float = 5.0
    lock: float = 2.0
    idle_in_transaction: float = 10.0
    acquire: float = 3.0
    connect: float = 5.0
    answer_margin: float = 5.0

    def as_settings(self) -> dict[str, str]:
        """The server's part of them, as it wants them."""
        seconds = {
            "statement_timeout": self.statement,
            "lock_timeout": self.lock,
            "idle_in_transaction_session_timeout": self.idle_in_transaction,
        }
        return {name: _milliseconds(value) for name, value in seconds.items()}


@dataclass(frozen=True, slots=True)
class Pool:
    """Connections to one database, all alike.

    Attributes:
        driver: the driver's pool; use `connection` and `transaction` instead.
        schema: where they look names up first.
        timeouts: what they were opened with.
    """

    driver: DriverPool
    schema: str
    timeouts: Timeouts


@asynccontextmanager
async def open_pool(
    dsn: str,
    *,
    schema: str,
    application_name: str,
    min_size: int = 1,
    max_size: int = 10,
    timeouts: Timeouts | None = None,
    statement_cache_size: int = 100,
    on_connect: Callable[[Connection], Awaitable[None]] | None = None,
) -> AsyncIterator[Pool]:
    """A pool for as long as the block lasts.

    Connections look names up in `schema`, then in `public`, where extensions live. `jsonb` is read
    and written as Python values. What is idle at the end is closed, what is lent out is awaited.

    Args:
        dsn: address of the database, with credentials.
        schema: the service's own schema.
        application_name: what the server's activity view and log call us.
        min_size: connections opened at once and kept.
        max_size: connections at most.
        timeouts: limits, see there.
        statement_cache_size: prepared statements kept per connection; 0 behind a pooler.
        on_connect: prepares each new connection further, such as `vectors.register_vectors`.

    Raises:
        UnavailableError: the database cannot be reached.
    """
    timeouts = timeouts or Timeouts()

    async def prepare(connection: Connection) -> None:
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=_to_json, decoder=json.loads
        )
        if on_connect is not None:
            await on_connect(connection)

    async with _opened(
        asyncpg.create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            timeout=timeouts.connect,
            command_timeout=timeouts.statement + timeouts.answer_margin,
            statement_cache_size=statement_cache_size,
            init=prepare,
            reset=_keep_session,
            server_settings={
                "application_name": application_name,
                "search_path": f"{identifier(schema)},public",
                **timeouts.as_settings(),
            },
        )
    ) as driver:
        yield Pool(driver, schema, timeouts)


@asynccontextmanager
async def connection(pool: Pool) -> AsyncIterator[PooledConnection]:
    """A connection for statements that stand alone, each its own transaction.

    Raises:
        ResourceExhaustedError: none became free in time.
        UnavailableError: the database is down, or took too long.
        AbortedError: lost a race; asking again may succeed.
    """
    lent = await _acquire(pool)
    try:
        with session_errors(lent):
            yield lent
    except UnavailableError as error:
        if isinstance(error.__cause__, asyncpg.ReadOnlySQLTransactionError):
            await pool.driver.expire_connections()
        raise
    finally:
        # One that was lost while its user was cancelled has left the pool by itself.
        with suppress(asyncpg.InternalClientError):
            await pool.driver.release(lent)


@asynccontextmanager
async def transaction(
    pool: Pool,
    *,
    isolation: Isolation | None = None,
    statement_timeout: float | None = None,
) -> AsyncIterator[PooledConnection]:
    """A connection with a transaction: committed at the end, rolled back on any exception.

    Await nothing but the database inside; an outside call would hold connection and locks.

    Args:
        pool: where the connection comes from.
        isolation: the server's default where none is given.
        statement_timeout: another limit for its statements, in seconds; statements that need more
            than the pool's answer margin on top must be given a `timeout` each.

    Raises:
        ServiceError: as `connection` does. After an UnavailableError the transaction may or may not
            have been committed; a repeat must be harmless.
    """
    async with connection(pool) as lent, lent.transaction(isolation=isolation):
        if statement_timeout is not None:
            await lent.execute(_SET_STATEMENT_TIMEOUT, _milliseconds(statement_timeout))
        yield lent


async def ping(pool: Pool) -> None:
    """Ask the database for a sign of life.

    Raises:
        ServiceError: as `connection` does.
    """
    async with connection(pool) as lent:
        await lent.execute("SELECT 1")


def identifier(name: str) -> str:
    """`name`, quoted for SQL text, if it is a plain lower-case name.

    Raises:
        ValueError: it is not.
    """
    if re.fullmatch("[a-z_][a-z0-9_]{0,62}", name) is None:
        raise ValueError(f"not a plain lower-case name: {name!r}")
    return f'"{name}"'


@asynccontextmanager
async def _opened(driver: DriverPool) -> AsyncIterator[DriverPool]:
    try:
        with driver_errors():
            await driver
    except OSError as error:
        raise unreachable() from error
    try:
        yield driver
    finally:
        await _close(driver)


async def _close(driver: DriverPool) -> None:
    try:
        async with asyncio.timeout(_CLOSE_GRACE):
            await driver.close()
    except TimeoutError:
        driver.terminate()


async def _acquire(pool: Pool) -> PooledConnection:
    driver = pool.driver
    try:
        with driver_errors():
            return await driver.acquire(timeout=pool.timeouts.acquire)
    except UnavailableError as error:
        waited_in_line = isinstance(error.__cause__, TimeoutError)
        if waited_in_line and driver.get_size() == driver.get_max_size():
            raise ResourceExhaustedError(
                "All database connections are in use.", retry_after=RETRY_AFTER
            ) from error
        raise
    except OSError as error:
        raise unreachable() from error


async def _keep_session(_: object) -> None:
    """Spare the round trip that resets a session: nobody changes one."""


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
