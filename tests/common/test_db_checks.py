"""What is checked before a database is used, on a real server."""

from pathlib import Path

import asyncpg
import pytest

from services.common.db_checks import DatabaseUnfitError, check_database
from services.common.errors import UnavailableError
from tests.pgbouncer import pgbouncer


async def check(dsn: str, **extensions: str) -> None:
    await check_database(dsn, extensions=extensions, application_name="test")


class TestCheckDatabase:
    async def test_an_extension_that_can_be_had_is_enough(self, empty_database: str) -> None:
        await check(empty_database, vector="0.8.4", plpgsql="1.0")

    async def test_one_that_is_not_there_is_named_in_one_line(self, empty_database: str) -> None:
        with pytest.raises(DatabaseUnfitError) as caught:
            await check(empty_database, graph="2.0")

        assert str(caught.value) == (
            "the database has no extension 'graph'; 2.0 or newer is needed"
        )

    async def test_one_that_is_too_old_is_told_with_its_version(self, empty_database: str) -> None:
        with pytest.raises(DatabaseUnfitError, match=r"'plpgsql' in version 1\.0; 1\.0\.1 or"):
            await check(empty_database, plpgsql="1.0.1")

    async def test_what_is_installed_counts_and_not_what_could_be(
        self, empty_database: str
    ) -> None:
        session = await asyncpg.connect(empty_database)
        await session.execute("CREATE EXTENSION vector")
        await session.execute("UPDATE pg_extension SET extversion = '0.8.0'")
        await session.close()

        with pytest.raises(DatabaseUnfitError, match=r"version 0\.8\.0; .* ALTER EXTENSION vector"):
            await check(empty_database, vector="0.8.4")

    async def test_versions_are_compared_by_number(self, empty_database: str) -> None:
        with pytest.raises(DatabaseUnfitError):
            await check(empty_database, plpgsql="1.10")

    async def test_a_poolers_address_is_refused(self, empty_database: str, tmp_path: Path) -> None:
        with (
            pgbouncer(empty_database, tmp_path) as pooler,
            pytest.raises(DatabaseUnfitError, match="CHATMIND_DATABASE_DIRECT_URL"),
        ):
            await check(pooler.dsn(empty_database))

    async def test_a_database_that_is_away_is_unavailable(self) -> None:
        with pytest.raises(UnavailableError):
            await check("postgresql://u:p@127.0.0.1:1/none")
