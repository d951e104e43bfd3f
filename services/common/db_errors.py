"""Translates the database driver's errors into errors that callers may see.

A statement that took too long is UNAVAILABLE, and so is a lock that did not become free, or a
database that is down; a lost race is ABORTED. Anything else is our own fault (a constraint, a wrong
statement) and passes unchanged, for the caller to catch or to become INTERNAL. The driver's text
goes into the log only, as the cause.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import asyncpg

from services.common.errors import AbortedError, ServiceError, UnavailableError

RETRY_AFTER = 1.0
"""Seconds after which it makes sense to try a database again."""

_RAISED = (
    asyncpg.PostgresError,
    asyncpg.TargetServerAttributeNotMatched,
    ConnectionError,
    TimeoutError,
)
_UNAVAILABLE_STATES = (
    "08",  # the connection broke
    "53",  # out of disk, memory or connections
    "57P",  # shutting down, starting, or the session was ended
    "25006",  # read-only: the primary moved
    "25P03",  # idle in transaction for too long
    "25P04",  # transaction took too long
)


class Closeable(Protocol):
    """A connection, whether from a pool or not."""

    def is_closed(self) -> bool:
        """Whether it is closed; may raise the driver's InterfaceError if so."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Translate the driver's errors; those that are our own fault pass unchanged.

    Raises:
        UnavailableError: the database is down or busy, or took too long.
        AbortedError: another transaction won a race; a retry may succeed.
    """
    try:
        yield
    except _RAISED as error:
        known = _translated(error)
        if known is None:
            raise
        raise known from error


@contextmanager
def session_errors(session: Closeable) -> Iterator[None]:
    """As `driver_errors`, for the use of one connection, whose loss the driver reports differently.

    Raises:
        ServiceError: as `driver_errors` does.
    """
    try:
        with driver_errors():
            yield
    except asyncpg.InterfaceError as error:
        if _is_gone(session):
            raise unreachable() from error
        raise
    except asyncpg.InternalClientError as error:
        # The server has said that it ends the session, and has not hung up yet.
        raise unreachable() from error


def _is_gone(session: Closeable) -> bool:
    try:
        return session.is_closed()
    except asyncpg.InterfaceError:  # a pool's proxy without its connection
        return True


def _translated(error: Exception) -> ServiceError | None:
    match error:
        case TimeoutError() | asyncpg.QueryCanceledError():
            return UnavailableError("The database took too long.", retry_after=RETRY_AFTER)
        case asyncpg.LockNotAvailableError():
            return UnavailableError("The database is busy.", retry_after=RETRY_AFTER)
        case asyncpg.SerializationError() | asyncpg.DeadlockDetectedError():
            return AbortedError("Another change came first.", retry_after=0.0)
        case ConnectionError() | asyncpg.TargetServerAttributeNotMatched():
            return unreachable()
        case asyncpg.PostgresError(sqlstate=str(state)) if state.startswith(_UNAVAILABLE_STATES):
            return unreachable()
    return None


def unreachable() -> UnavailableError:
    """The error for a database that cannot be reached."""
    return UnavailableError("The database cannot be reached.", retry_after=RETRY_AFTER)
