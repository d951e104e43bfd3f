"""Opening the bus; tests/contracts/test_hints.py uses it."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from cli.local.ports import free_ports
from services.common.bus.open import open_bus
from services.common.bus.settings import BusSettings
from tests.conftest import PostgresServer
from tests.contracts.hints import hinted


def settings(**variables: str) -> BusSettings:
    """Settings of a server that listens nowhere."""
    return BusSettings.model_validate(
        {"listen": "127.0.0.1:0", "identity_dir": Path(), **variables}
    )


class TestOpenBus:
    @pytest.mark.parametrize("bus", ["postgres", "nats"])
    async def test_one_whose_server_is_away_opens_and_ends_in_time(self, bus: str) -> None:
        """What could not be sent holds the end up for a second, no longer."""
        nobody = f"127.0.0.1:{next(free_ports())}"
        away = settings(
            CHATMIND_BUS=bus,
            CHATMIND_NATS_URL=f"nats://{nobody}",
            CHATMIND_DATABASE_URL=f"postgresql://u:p@{nobody}/none",
        )

        async with asyncio.timeout(10), open_bus(away, "news", application_name="t") as opened:
            opened.notifier.notify("a")

    async def test_postgresql_is_reached_past_the_pooler(
        self, postgres_server: PostgresServer
    ) -> None:
        nobody = f"127.0.0.1:{next(free_ports())}"
        pooled = settings(
            CHATMIND_DATABASE_URL=f"postgresql://u:p@{nobody}/none",
            CHATMIND_DATABASE_DIRECT_URL=postgres_server.dsn("postgres"),
        )

        async with open_bus(pooled, "news", application_name="t") as opened:
            with hinted(opened.listener, "a") as news:
                waiting = asyncio.create_task(news.wait())
                async with asyncio.timeout(20):
                    while not waiting.done():
                        opened.notifier.notify("a")
                        await asyncio.wait({waiting}, timeout=0.1)

    async def test_a_database_that_refuses_us_ends_the_block(
        self, postgres_server: PostgresServer
    ) -> None:
        right = postgres_server.dsn("postgres")
        password = right.partition("@")[0].rpartition(":")[2]
        wrong = settings(CHATMIND_DATABASE_URL=right.replace(f":{password}@", ":wrong@"))

        async with asyncio.timeout(20):
            with pytest.raises(asyncpg.InvalidPasswordError):
                async with open_bus(wrong, "news", application_name="t"):
                    await asyncio.Event().wait()
