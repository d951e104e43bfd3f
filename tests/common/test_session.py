"""Sessions of one's own, on a real server."""

import asyncio

import asyncpg
import pytest

from services.common import session
from services.common.errors import UnavailableError
from services.common.session import Connection, keep_session, open_connection


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


class TestKeepSession:
    async def test_a_lost_session_is_made_again(self, empty_database: str) -> None:
        seen: list[int] = []
        enough = asyncio.Event()

        async def use(connection: Connection) -> None:
            seen.append(await connection.fetchval("SELECT pg_backend_pid()"))
            if len(seen) == 3:
                enough.set()
                await asyncio.Event().wait()
            await _lose(connection)

        keeping = asyncio.create_task(keep_session(empty_database, use, application_name="t"))
        await asyncio.wait_for(enough.wait(), 10)
        keeping.cancel()

        with pytest.raises(asyncio.CancelledError):
            await keeping
        assert len(set(seen)) == 3

    async def test_attempts_at_a_database_that_is_away_are_spaced(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempts = 0

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal attempts
            attempts += 1
            writer.close()

        async def use(_: Connection) -> None:
            raise AssertionError("there is no database")

        monkeypatch.setattr(session, "_FIRST_PAUSE", 0.05)
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            dsn = f"postgresql://u:p@127.0.0.1:{port}/x?sslmode=disable"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(keep_session(dsn, use, application_name="t"), 1)

        assert 2 <= attempts <= 6

    async def test_what_is_no_loss_ends_it(self, empty_database: str) -> None:
        async def use(connection: Connection) -> None:
            await connection.execute("SELECT * FROM absent")

        with pytest.raises(asyncpg.UndefinedTableError):
            await keep_session(empty_database, use, application_name="t")
