"""The services' database and the role that owns it."""

from pathlib import Path

import asyncpg
import pytest

from cli.local.database import owned_database
from cli.local.postgres import EmbeddedPostgres
from services.common.migrate import load_migrations, migrate
from tests.cli.local.running import one

MIGRATIONS = Path(__file__).parents[3] / "services"


class TestOwnedDatabase:
    """What the services are let in with."""

    async def test_the_owner_is_no_superuser_and_runs_no_programs(self, data_dir: Path) -> None:
        """The role owns the database and nothing else."""
        async with EmbeddedPostgres(data_dir, settings={"fsync": "off"}) as server:
            dsn = await owned_database(server, data_dir)

            assert await one(dsn, "SELECT current_user::text") == "chatmind"
            assert await one(dsn, "SELECT NOT rolsuper FROM pg_roles WHERE rolname = current_user")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await one(dsn, "COPY (SELECT 1) TO PROGRAM 'cat'")

    async def test_the_owner_can_do_all_that_the_services_need(self, data_dir: Path) -> None:
        """Every migration applies, the second time as well."""
        async with EmbeddedPostgres(data_dir, settings={"fsync": "off"}) as server:
            dsn = await owned_database(server, data_dir)
            again = await owned_database(server, data_dir)

            for folder in sorted(MIGRATIONS.glob("*/store/migrations")):
                await migrate(dsn, load_migrations(folder), schema=folder.parents[1].name)

            assert dsn == again
            assert await one(dsn, "SELECT '[1,2]'::public.vector IS NOT NULL")
