"""PostgreSQL over asyncpg: a pool with timeouts, transactions, and errors that callers may see."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from services.common.db_errors import RETRY_AFTER, driver_errors, session_errors, unreachable
from services.common.errors import ResourceExhaustedError, UnavailableError
from services.common.pooler import pooled_sessions
from services.common.session import Connection

PooledConnection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
"""A connection on loan from a pool."""

DriverPool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
"""The driver's own pool."""

_CLOSE_GRACE = 5.0
_PREPARED_STATEMENTS = 100
# Compiling a statement takes longer than any of ours. Through a pooler that is left to the server:
# the driver, which sets this too for a moment, would leave it behind.
_DIRECT = {"jit": "off"}
_SET_STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', $1, true)"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds.

    Attributes:
        statement: one statement, on the server.
        lock: waiting for one lock.
        idle_in_transaction: a transaction in which nothing happens.
        acquire: waiting for a connection of the pool.
        connect: opening a connection.
        answer_margin: waiting for the server's answer, in addition to `statement`.
    """

    statement: float = 5.0
    lock: float = 2.0
    idle_in_transaction: float = 10.0
    acquire: float = 3.0
    connect: float = 5.0
    answer_margin: float = 5.0

    def as_settings(self) -> dict[str, str]:
        """Those that the server enforces, as its settings."""
        seconds = {
            "statement_timeout": self.statement,
            "lock_timeout": self.lock,
            "idle_in_transaction_session_timeout": self.idle_in_transaction,
        }
        return {name: _milliseconds(value) for name, value in seconds.items()}


class Reach:
    """Whether the database could be reached the last time; a change is logged, once."""

    def __init__(self) -> None:
        self._lost = False

    def found(self) -> None:
        """A connection was lent."""
        if self._lost:
            self._lost = False
            structlog.get_logger("db").info("database reached again")

    def missed(self, error: UnavailableError) -> None:
        """No connection could be opened."""
        if not self._lost:
            self._lost = True
            cause = repr(error.__cause__)
            structlog.get_logger("db").warning("database cannot be reached", cause=cause)


@dataclass(frozen=True, slots=True)
class Pool:
    """Connections to one database.

    Attributes:
        driver: the driver's pool; not to be used outside of this module.
        schema: the schema in which names are looked up first.
        timeouts: with which the connections were opened.
        reach: whether the database is there.
    """

    driver: DriverPool
    schema: str
    timeouts: Timeouts
    reach: Reach = field(default_factory=Reach)


@asynccontextmanager
async def open_pool(
    dsn: str,
    *,
    schema: str,
    application_name: str,
    max_size: int = 10,
    pooled: bool = False,
    timeouts: Timeouts | None = None,
    on_connect: Callable[[Connection], Awaitable[None]] | None = None,
) -> AsyncIterator[Pool]:
    """A pool for as long as the block lasts.

    Names are looked up in `schema`, then in `public`, where extensions live. `jsonb` is read and
    written as Python values. At the end idle connections are closed, and those in use are awaited.

    Args:
        dsn: address of the database, with credentials.
        schema: the service's own schema.
        application_name: shown in the server's activity view and log.
        max_size: connections at most; the first is opened at once, the others when needed.
        pooled: the address is that of a pooler in transaction mode; see `pooler`.
        timeouts: see `Timeouts`, whose defaults hold otherwise.
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

    names = {"search_path": f"{identifier(schema)},public"}
    settings = names | timeouts.as_settings()
    async with _opened(
        asyncpg.create_pool(
            dsn,
            init_size=1,
            min_size=0,  # the driver logs a traceback whenever it cannot keep up a least size
            max_size=max_size,
            timeout=timeouts.connect,
            command_timeout=timeouts.statement + timeouts.answer_margin,
            init=prepare,
            reset=_keep_session,
            server_settings={
                "application_name": application_name,
                **({} if pooled else settings | _DIRECT),
            },
            connection_class=pooled_sessions(settings) if pooled else asyncpg.Connection,
            statement_cache_size=0 if pooled else _PREPARED_STATEMENTS,
        )
    ) as driver:
        yield Pool(driver, schema, timeouts)


@asynccontextmanager
async def connection(pool: Pool) -> AsyncIterator[PooledConnection]:
    """A connection for single statements, each its own transaction.

    Raises:
        ResourceExhaustedError: no connection became free in time.
        UnavailableError: the database is down, or took too long.
        AbortedError: another transaction won a race; a retry may succeed.
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
        # One that was lost while its user was cancelled has left the pool by itself; one whose
        # server does not answer any more is closed by the driver.
        with suppress(asyncpg.InternalClientError, OSError):
            await pool.driver.release(lent)


@asynccontextmanager
async def transaction(
    pool: Pool, *, statement_timeout: float | None = None
) -> AsyncIterator[PooledConnection]:
    """A connection with a transaction: committed at the end, rolled back on any exception.

    Await nothing but the database inside; any other call would hold the connection and its locks.

    Args:
        pool: lends the connection.
        statement_timeout: replaces the pool's limit for the statements inside, in seconds. A
            statement that may take longer than the pool's limit and answer margin together also
            needs a `timeout` of its own.

    Raises:
        ServiceError: as `connection` does. After an UnavailableError the transaction may or may not
            have been committed, so a retry must be harmless.
    """
    async with connection(pool) as lent, lent.transaction():
        if statement_timeout is not None:
            await lent.execute(_SET_STATEMENT_TIMEOUT, _milliseconds(statement_timeout))
        yield lent


async def ping(pool: Pool) -> None:
    """Check that the database answers.

    Raises:
        ServiceError: as `connection` does.
    """
    async with connection(pool) as lent:
        await lent.execute("SELECT 1")


def identifier(name: str) -> str:
    """A plain lower-case name, quoted for SQL text.

    Raises:
        ValueError: the name is anything else.
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
    try:
        lent = await _lend(pool)
    except ResourceExhaustedError:
        raise
    except UnavailableError as error:
        pool.reach.missed(error)
        raise
    pool.reach.found()
    return lent


async def _lend(pool: Pool) -> PooledConnection:
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
    """Save the round trip that would reset the session: nothing changes it."""


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
