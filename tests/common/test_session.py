"""Sessions of one's own, on a real server."""

import asyncio

import asyncpg
import pytest

from services.common.errors import UnavailableError
from services.common.session import Connection, open_connection


async def _lose(connection: Connection) -> None:
    """Let the server end this very session."""
    await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


class TestOpenConnection:
    async def test_carries_its_name_and_settings(self, empty_database: str) -> None:
        settings = {"synchronous_commit": "off"}
        async with open_connection(
            empty_database, application_name="mine", settings=settings
        ) as opened:
            shown = [
                await opened.fetchval(f"SHOW {name}")
                for name in ("application_name", "synchronous_commit")
            ]

        assert shown == ["mine", "off"]
        assert opened.is_closed()

    async def test_a_lost_one_is_unavailable(self, empty_database: str) -> None:
        async def lose_and_ask() -> None:
            async with open_connection(empty_database, application_name="t") as opened:
                try:
                    await _lose(opened)
                except asyncpg.PostgresError:
                    await opened.fetchval("SELECT 1")

        with pytest.raises(UnavailableError):
            await lose_and_ask()

    async def test_one_that_cannot_be_made_is_unavailable(self) -> None:
        with pytest.raises(UnavailableError):
            async with open_connection("postgresql://u:p@127.0.0.1:1/x", application_name="t"):
                pass

    async def test_a_server_that_never_answers_is_unavailable_in_time(self) -> None:
        hung_up = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            hung_up.set()

        async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            dsn = f"postgresql://u:p@127.0.0.1:{port}/x"
            async with asyncio.timeout(3):
                with pytest.raises(UnavailableError):
                    async with open_connection(dsn, application_name="t", timeout=0.2):
                        pass
                await hung_up.wait()
