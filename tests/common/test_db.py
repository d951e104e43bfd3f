"""The pool, on a real server."""

from services.common.db import open_pool, ping


class TestOpenPool:
    async def test_pings(self, database: str) -> None:
        async with open_pool(database, schema="agent", application_name="test") as pool:
            await ping(pool)

    async def test_pings2(self, database: str) -> None:
        async with open_pool(database, schema="agent", application_name="test") as pool:
            await ping(pool)


def test_sync(database: str) -> None:
    assert database
