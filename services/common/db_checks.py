"""What a database has to be like before a service starts to use it."""

import re
from collections.abc import Mapping

from services.common.errors import StartupError
from services.common.session import Connection, open_connection

# What is installed counts, else what can be.
_VERSION = """
SELECT coalesce(
    (SELECT extversion FROM pg_extension WHERE extname = $1),
    (SELECT default_version FROM pg_available_extensions WHERE name = $1))
"""


class DatabaseUnfitError(StartupError):
    """The database lacks something, or the address leads elsewhere."""


async def check_database(
    direct_dsn: str, *, extensions: Mapping[str, str], application_name: str
) -> None:
    """Check that an address is PostgreSQL's own, and what the server offers.

    Args:
        direct_dsn: the address; a pooler's would accept LISTEN, and never deliver anything.
        extensions: those that are needed, each with the oldest version that will do.
        application_name: shown in the server's activity view.

    Raises:
        DatabaseUnfitError: the address is a pooler's, or an extension is missing or too old.
        UnavailableError: the database cannot be reached.
    """
    async with open_connection(direct_dsn, application_name=application_name) as session:
        await _check_direct(session)
        for name, oldest in extensions.items():
            await _check_extension(session, name, oldest)


async def _check_direct(session: Connection) -> None:
    # A pooler tells its clients the process ids of sessions that it has made up.
    if session.get_server_pid() != await session.fetchval("SELECT pg_backend_pid()"):
        raise DatabaseUnfitError(
            "the database's address leads to a connection pooler: "
            "CHATMIND_DATABASE_DIRECT_URL has to be PostgreSQL's own"
        )


async def _check_extension(session: Connection, name: str, oldest: str) -> None:
    found: str | None = await session.fetchval(_VERSION, name)
    if found is None:
        raise DatabaseUnfitError(
            f"the database has no extension {name!r}; {oldest} or newer is needed"
        )
    if _numbers(found) < _numbers(oldest):
        raise DatabaseUnfitError(
            f"the database has the extension {name!r} in version {found}; {oldest} or newer is "
            f"needed (install it, then ALTER EXTENSION {name} UPDATE)"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
