"""Asks another PostgreSQL database for a model; satisfies `ports.SqlDatabase`.

Each query has a session of its own, which is thrown away, so that nothing a query sets outlives it.
It is sent by the extended protocol, which takes one statement, and first read alone; then it is run
inside of

    SELECT left(c1::text, …), … FROM (the query) AS q (c1, …) LIMIT …

where only a query can stand: no DO, no COPY, no SET, no NOTIFY, no writing WITH. The transaction is
READ ONLY, cannot be made otherwise once it has begun, and is never committed. Functions that act
beyond it cannot be named. A timer of this process ends a query that takes too long, as a session
may turn off the server's.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import asyncpg
import structlog

from services.agent.clients.sql.checks import (
    UnsafeDatabaseError,
    check_role,
    read_identity,
    read_tables,
)
from services.agent.clients.sql.file import SqlSettings
from services.agent.clients.sql.functions import check_functions, read_refused
from services.agent.domain.models import RunId
from services.agent.domain.tools.errors import FailedToolError, RetryToolError, ToolError
from services.agent.domain.tools.outside import visible
from services.agent.domain.tools.sql.tables import Column, Rows, Table
from services.common.session import Connection
from services.common.text import clean

MOST_COLUMNS: Final = 100
MOST_CELL_CHARS: Final = 2000
MOST_RESULT_CHARS: Final = 400_000

_START_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 0.3
_ROWS_AT_ONCE: Final = 20
_MOST_TOLD_CHARS: Final = 400
_CUT: Final = "…"
# What a model can do something about: its syntax and names, its values, too many of them.
_ITS_OWN_FAULT: Final = ("42", "22", "21", "0A", "54", "2F", "38", "39")
_UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class PostgresSqlDatabase:
    """One database."""

    def __init__(self, settings: SqlSettings, *, own: tuple[int, int]) -> None:
        """Knows of the database; `read` looks at it.

        Args:
            settings: how it is reached and bounded.
            own: the identity of ChatMind's own database, which must not be asked.
        """
        self._settings = settings
        self._own = own
        self._tables: Sequence[Table] | None = None
        self._refused: Collection[str] = ()
        self._gate = asyncio.Semaphore(settings.connections)
        self._log = structlog.get_logger("sql").bind(database=settings.name)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._settings.name

    @property
    def description(self) -> str:
        """What is in it."""
        return self._settings.description

    @property
    def tables(self) -> Sequence[Table] | None:
        """What can be read; None where it has not been reached yet."""
        return self._tables

    async def read(self) -> None:
        """Look at the database at the start; one that is down is looked at when it is asked.

        Raises:
            UnsafeDatabaseError: it is ChatMind's own, or its role can do more than read.
        """
        try:
            async with asyncio.timeout(_START_SECONDS), self._session():
                pass
        except _UNREACHABLE as error:
            self._log.warning("database cannot be reached", cause=repr(error))

    async def query(self, sql: str, *, run_id: RunId) -> Rows:
        """What one query brings; see `ports.SqlDatabase`."""
        log = self._log.bind(run_id=run_id)
        try:
            async with asyncio.timeout(self._settings.seconds):
                async with self._gate, self._session() as session:
                    rows = await self._ask(session, sql)
        except UnsafeDatabaseError as error:
            log.warning("database must not be asked", cause=str(error))
            raise FailedToolError(f"the database {self.name} must not be asked") from error
        except _UNREACHABLE as error:
            # Not what it says: that may be out of a row.
            log.info("query failed", cause=type(error).__name__)
            raise self._told(error) from error
        log.info("query answered", rows=len(rows.rows), whole=rows.whole)
        return rows

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Connection]:
        """A new session that is closed at the end, whatever it is doing."""
        milliseconds = f"{self._settings.seconds * 1000:.0f}"
        session = await asyncpg.connect(
            self._settings.dsn,
            timeout=self._settings.seconds,
            statement_cache_size=0,
            server_settings={
                "application_name": "chatmind-query-sql",
                "default_transaction_read_only": "on",
                "statement_timeout": milliseconds,
                "lock_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds,
                "max_parallel_workers_per_gather": "0",
                "jit": "off",
            },
        )
        try:
            await self._checked(session)
            yield session
        finally:
            # The driver first tells the server to cancel what it is doing, if anything.
            with suppress(*_UNREACHABLE):
                await session.close(timeout=_CLOSE_SECONDS)
            session.terminate()

    async def _checked(self, session: Connection) -> None:
        """Check which database this is each time, and its role the first time."""
        where = f"databases.{self.name}"
        try:
            if await read_identity(session) == self._own:
                raise UnsafeDatabaseError(
                    f"{where}: this is ChatMind's own database, or a copy of it"
                )
            if self._tables is None:
                await check_role(session, where=where)
                self._refused = await read_refused(session)
                self._tables = await read_tables(session, self._settings.tables, where=where)
        except asyncpg.SyntaxOrAccessError as error:
            raise UnsafeDatabaseError(f"{where}: it cannot be checked: {_line(error)}") from error

    async def _ask(self, session: Connection, sql: str) -> Rows:
        check_functions(clean(sql), self._refused)
        await session.execute("BEGIN READ ONLY")
        columns = await _columns(session, clean(sql))
        names = [f"c{number}" for number in range(1, len(columns) + 1)]
        shown = ", ".join(f"left(q.{name}::text, {MOST_CELL_CHARS + 1})" for name in names)
        # The query may end in a comment or a semicolon.
        within = sql.rstrip().removesuffix(";")
        most = self._settings.max_rows
        statement = await session.prepare(
            f"SELECT {shown} FROM (\n{clean(within)}\n) AS q ({', '.join(names)}) LIMIT {most + 1}"  # noqa: S608
        )
        cursor = await statement.cursor()
        rows, size = list[tuple[str | None, ...]](), 0
        while size <= MOST_RESULT_CHARS and len(rows) <= most:
            batch = await cursor.fetch(_ROWS_AT_ONCE)
            if not batch:
                return Rows(columns, tuple(rows), whole=True)
            rows += [tuple(_cut(value) for value in row) for row in batch]
            size += sum(len(value or "") for row in rows[-len(batch) :] for value in row)
        return Rows(columns, tuple(rows[:most]), whole=False)

    def _told(self, error: Exception) -> ToolError:
        """What the model is told of an error of the driver's."""
        if isinstance(error, TimeoutError | asyncpg.QueryCanceledError):
            seconds = f"{self._settings.seconds:g} s"
            return RetryToolError(f"the query took longer than {seconds}; ask for less at once")
        if not isinstance(error, asyncpg.PostgresError):
            return FailedToolError(f"the database {self.name} cannot be asked now")
        state = str(error.sqlstate or "")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return FailedToolError("nothing can be changed in this database")
        if not state.startswith(_ITS_OWN_FAULT):
            return FailedToolError(f"the database {self.name} cannot answer this")
        return RetryToolError(f"the database says: {_line(error)}")


async def _columns(session: Connection, sql: str) -> tuple[Column, ...]:
    """The columns of a query, which is read and not run.

    Raises:
        RetryToolError: it is none, or has parameters, or columns too many or too strange.
    """
    try:
        statement = await session.prepare(sql)
    except asyncpg.InternalClientError as error:  # the driver does not know such a type
        raise RetryToolError("a column has a type that cannot be shown; cast it to text") from error
    if statement.get_parameters():
        raise RetryToolError("the query must have its values in it, and no $1")
    columns = tuple(Column(each.name, each.type.name) for each in statement.get_attributes())
    if not columns:
        raise RetryToolError("only one SELECT that brings columns can be run")
    if len(columns) > MOST_COLUMNS:
        raise RetryToolError(f"the query has {len(columns)} columns; {MOST_COLUMNS} can be shown")
    return columns


def _cut(value: str | None) -> str | None:
    if value is None or len(value) <= MOST_CELL_CHARS:
        return value
    return value[:MOST_CELL_CHARS] + _CUT


def _line(error: asyncpg.PostgresError) -> str:
    """What the server says, on one line."""
    told = [str(error.args[0]) if error.args else "", str(getattr(error, "hint", None) or "")]
    shown, _ = visible(" ".join(" ".join(told).split()))
    return shown[:_MOST_TOLD_CHARS]
