"""A service's own schema, on a real server."""

import asyncio
from pathlib import Path

import pytest

from services.common.db import connection
from services.common.db_checks import DatabaseUnfitError
from services.common.schema import migrate_schema, open_schema
from services.common.settings import Address, DatabaseSettings, read_settings, settings_config
from tests.pgbouncer import pgbouncer


class ShopSettings(DatabaseSettings):
    """The settings of an imagined service."""

    model_config = settings_config("CHATMIND_SHOP_")

    listen: Address = "127.0.0.1:0"


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """A folder with one migration."""
    (tmp_path / "0001_item.sql").write_text("CREATE TABLE item (id int)", encoding="utf-8")
    return tmp_path


@pytest.fixture
def environment(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pytest.MonkeyPatch:
    """An environment that names an empty database."""
    monkeypatch.setenv("CHATMIND_DATABASE_URL", empty_database)
    monkeypatch.setenv("CHATMIND_SHOP_IDENTITY_DIR", str(tmp_path))
    return monkeypatch


async def count_items(settings: DatabaseSettings, migrations: Path) -> object:
    async with (
        open_schema(
            settings, schema="shop", migrations=migrations, application_name="shop"
        ) as pool,
        connection(pool) as lent,
    ):
        return await lent.fetchval("SELECT count(*) FROM item")


@pytest.mark.usefixtures("environment")
class TestOpenSchema:
    async def test_a_schema_is_migrated_before_it_is_opened(self, migrations: Path) -> None:
        assert await count_items(read_settings(ShopSettings), migrations) == 0

    async def test_without_leave_to_migrate_it_waits_for_whoever_does(
        self, environment: pytest.MonkeyPatch, migrations: Path
    ) -> None:
        environment.setenv("CHATMIND_SHOP_MIGRATE", "false")
        settings = read_settings(ShopSettings)
        counting = asyncio.create_task(count_items(settings, migrations))
        done, _ = await asyncio.wait({counting}, timeout=0.3)
        await migrate_schema(settings, schema="shop", migrations=migrations)

        assert not done
        assert await asyncio.wait_for(counting, 10) == 0

    async def test_behind_a_pooler_it_is_migrated_by_the_direct_address(
        self,
        environment: pytest.MonkeyPatch,
        empty_database: str,
        migrations: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        with pgbouncer(empty_database, tmp_path_factory.mktemp("pooler")) as pooler:
            environment.setenv("CHATMIND_DATABASE_URL", pooler.dsn(empty_database))
            environment.setenv("CHATMIND_DATABASE_DIRECT_URL", empty_database)

            assert await count_items(read_settings(ShopSettings), migrations) == 0

    @pytest.mark.parametrize("migrate", ["true", "false"])
    async def test_a_pooler_that_is_not_told_of_is_refused(
        self,
        environment: pytest.MonkeyPatch,
        empty_database: str,
        migrations: Path,
        tmp_path_factory: pytest.TempPathFactory,
        migrate: str,
    ) -> None:
        with pgbouncer(empty_database, tmp_path_factory.mktemp("pooler")) as pooler:
            environment.setenv("CHATMIND_DATABASE_URL", pooler.dsn(empty_database))
            environment.setenv("CHATMIND_SHOP_MIGRATE", migrate)

            with pytest.raises(DatabaseUnfitError, match="CHATMIND_DATABASE_DIRECT_URL"):
                await count_items(read_settings(ShopSettings), migrations)

    @pytest.mark.parametrize("migrate", ["true", "false"])
    async def test_without_an_extension_that_it_needs_it_does_not_open(
        self, environment: pytest.MonkeyPatch, migrations: Path, migrate: str
    ) -> None:
        environment.setenv("CHATMIND_SHOP_MIGRATE", migrate)

        with pytest.raises(DatabaseUnfitError, match="'graph'"):
            async with open_schema(
                read_settings(ShopSettings),
                schema="shop",
                migrations=migrations,
                application_name="shop",
                extensions={"graph": "2.0"},
            ):
                pass
