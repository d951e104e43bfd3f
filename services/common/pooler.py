"""Connections that go through a pooler in transaction mode, such as PgBouncer.

There each transaction may run in another session of the server, and what is set for a session is
seen by whoever comes next. So nothing is: each statement runs in a transaction, which begins by
setting for itself what a direct connection sets once. This costs three round trips more for a
statement and none for a transaction, and needs no configuration of the pooler.
"""

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

import asyncpg

if TYPE_CHECKING:
    _Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, object]])


def _by_itself(method: _Method) -> _Method:
    """A method of the driver's that, outside a transaction, is one by itself."""

    @wraps(method)
    async def in_transaction(self: "PooledSession", *args: object, **options: object) -> object:
        if self.is_in_transaction():
            return await method(self, *args, **options)
        async with self.transaction():
            return await method(self, *args, **options)

    return cast("_Method", in_transaction)


class PooledSession(_Connection):
    """A connection that relies on nothing of its session, and leaves nothing in it."""

    begin_with: ClassVar[str] = ""
    """The statement that follows every BEGIN."""

    async def execute(
        self,
        query: str,
        *args: object,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> str:
        """As the driver's, which begins its transactions by this method too."""
        if query.startswith("BEGIN"):
            return await super().execute(f"{query} {self.begin_with}", timeout=timeout)
        return await self._execute_by_itself(query, *args, timeout=timeout)

    _execute_by_itself = _by_itself(_Connection.execute)
    executemany = _by_itself(_Connection.executemany)
    fetch = _by_itself(_Connection.fetch)
    fetchrow = _by_itself(_Connection.fetchrow)
    fetchval = _by_itself(_Connection.fetchval)
    copy_records_to_table = _by_itself(_Connection.copy_records_to_table)


def pooled_sessions(settings: Mapping[str, str]) -> type[PooledSession]:
    """Sessions whose every transaction has these settings of the server."""
    values = (f"set_config('{name}', '{value}', true)" for name, value in settings.items())

    class Session(PooledSession):
        begin_with = f"SELECT {', '.join(values)};"

    return Session
