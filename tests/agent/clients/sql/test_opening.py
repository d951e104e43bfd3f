from dataclasses import replace

import pytest

from services.agent.clients.sql.checks import UnsafeDatabaseError
from services.agent.clients.sql.opening import open_databases
from services.common.db import open_pool
from tests.agent.clients.sql.shop import open_shop
from tests.conftest import PostgresServer


async def test_databases_are_opened_and_chatminds_own_is_refused(
    postgres_server: PostgresServer, database: str
) -> None:
    """One that is down does not keep the service from starting."""
    async with (
        open_shop(postgres_server) as shop,
        open_pool(database, schema="agent", application_name="test") as pool,
    ):
        down = shop.settings(name="down", dsn="postgresql://a:b@127.0.0.1:1/c")

        opened = await open_databases([shop.settings(), down], pool)

        assert [each.tables is None for each in opened] == [False, True]
        assert await open_databases([], pool) == ()
        with pytest.raises(UnsafeDatabaseError, match=r"^databases\.own: this is ChatMind's own"):
            await open_databases([replace(down, name="own", dsn=database)], pool)
