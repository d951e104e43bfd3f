"""A service's own schema in the shared database: brought up to date, then opened."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from services.common.db import Pool, open_pool
from services.common.db_checks import check_database
from services.common.migrate import load_migrations, migrate, wait_until_current
from services.common.session import Connection
from services.common.settings import DatabaseSettings

_MIGRATED_ELSEWHERE_SECONDS = 60.0


async def migrate_schema(
    settings: DatabaseSettings,
    *,
    schema: str,
    migrations: Path,
    extensions: Mapping[str, str] | None = None,
) -> None:
    """Apply the migrations that the schema still lacks.

    Args:
        settings: say where the database is.
        schema: the schema's name.
        migrations: the folder of its migrations.
        extensions: what they need, each with the oldest version that will do.

    Raises:
        DatabaseUnfitError: the address is a pooler's, or an extension is missing or too old.
        MigrationError: the files and the database do not belong together.
        UnavailableError: the database cannot be reached.
    """
    dsn = settings.direct_dsn
    await check_database(dsn, extensions=extensions or {}, application_name="chatmind-migrate")
    await migrate(dsn, load_migrations(migrations), schema=schema)


@asynccontextmanager
async def open_schema(
    settings: DatabaseSettings,
    *,
    schema: str,
    migrations: Path,
    application_name: str,
    extensions: Mapping[str, str] | None = None,
    on_connect: Callable[[Connection], Awaitable[None]] | None = None,
) -> AsyncIterator[Pool]:
    """A pool over the schema once it is up to date, for as long as the block lasts.

    Without `settings.migrate` somebody else applies the migrations; that is waited for.

    Args:
        settings: say where the database is and who migrates it.
        schema: the schema's name.
        migrations: the folder of its migrations.
        application_name: shown in the server's activity view.
        extensions: what is needed, each with the oldest version that will do.
        on_connect: see `db.open_pool`.

    Raises:
        DatabaseUnfitError: an address is a pooler's, or an extension is missing or too old.
        MigrationError: the files and the database do not belong together.
        UnavailableError: the database cannot be reached, or nobody migrated it in time.
    """
    if settings.migrate:
        await migrate_schema(settings, schema=schema, migrations=migrations, extensions=extensions)
    else:
        await check_database(
            settings.direct_dsn, extensions=extensions or {}, application_name=application_name
        )
    async with open_pool(
        settings.dsn,
        schema=schema,
        application_name=application_name,
        max_size=settings.database_pool,
        pooled=settings.pooled,
        on_connect=on_connect,
    ) as pool:
        loaded = load_migrations(migrations)
        await wait_until_current(pool, loaded, timeout=_MIGRATED_ELSEWHERE_SECONDS)
        yield pool
