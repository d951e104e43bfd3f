"""The pool, on a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import asyncpg
import pytest
import structlog

from services.common import db
from services.common.db import Pool, Timeouts, connection, identifier, open_pool, ping, transaction
from services.common.errors import AbortedError, ResourceExhaustedError, UnavailableError
from tests.faults.proxy import open_proxy

SHORT = Timeouts(statement=0.3, lock=0.2, idle_in_transaction=0.3, acquire=0.3)


@pytest.fixture
async def pool(empty_database: str) -> AsyncIterator[Pool]:
    """Two connections with short limits, and a table `item` in the schema `shop`."""
    async with open_pool(
        empty_database, schema="shop", application_name="shop-1", max_size=2, timeouts=SHORT
    ) as pool:
        async with connection(pool) as lent:
            await lent.execute("CREATE SCHEMA shop")
            await lent.execute("CREATE TABLE item (id int PRIMARY KEY, count int DEFAULT 0)")
            await lent.execute("INSERT INTO item (id) VALUES (1), (2)")
        yield pool


class TestOpenPool:
    async def test_names_mean_the_own_schema_before_public(self, pool: Pool) -> None:
        async with connection(pool) as lent:
            shown = await lent.fetchval("SELECT 'shop.item'::regclass::text")
            schemas = await lent.fetchval("SELECT current_schemas(false)")

        assert shown == "item"
        assert schemas == ["shop", "public"]

    async def test_is_known_to_the_server_by_name(self, pool: Pool) -> None:
        async with connection(pool) as lent:
            name = await lent.fetchval(
                "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            )

        assert name == "shop-1"

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("statement_timeout", "5s"),
            ("jit", "off"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "10s"),
        ],
    )
    async def test_limits_are_the_servers_too(
        self, empty_database: str, setting: str, value: str
    ) -> None:
        async with (
            open_pool(empty_database, schema="shop", application_name="t") as pool,
            connection(pool) as lent,
        ):
            assert value == await lent.fetchval(f"SHOW {setting}")

    @pytest.mark.parametrize("value", [{"名": ["前", 1, 1.5, None, True]}, [], "text", None, 0])
    async def test_jsonb_is_read_and_written_as_values(self, pool: Pool, value: object) -> None:
        async with connection(pool) as lent:
            assert value == await lent.fetchval("SELECT $1::jsonb", value)

    async def test_a_database_that_is_not_there_is_unavailable(self) -> None:
        dsn = "postgresql://nobody:secret@127.0.0.1:1/none"

        with pytest.raises(UnavailableError) as caught:
            async with open_pool(dsn, schema="shop", application_name="t"):
                pass

        assert caught.value.message == "The database cannot be reached."

    async def test_a_connection_never_given_back_does_not_hold_up_the_end(
        self, empty_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(db, "_CLOSE_GRACE", 0.1)

        async with (
            asyncio.timeout(5),
            open_pool(empty_database, schema="shop", application_name="t") as pool,
        ):
            await pool.driver.acquire()

        assert pool.driver.is_closing()


class TestConnection:
    async def test_a_statement_over_its_time_is_unavailable(self, pool: Pool) -> None:
        with pytest.raises(UnavailableError) as caught:
            async with connection(pool) as lent:
                await lent.execute("SELECT pg_sleep(30)")

        assert caught.value.message == "The database took too long."
        assert caught.value.retry_after == 1.0

    async def test_a_lock_that_does_not_come_free_is_unavailable(
        self, pool: Pool, empty_database: str
    ) -> None:
        holder = await asyncpg.connect(empty_database)
        try:
            async with holder.transaction():
                await holder.execute("LOCK TABLE shop.item IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(UnavailableError, match="busy"):
                    async with connection(pool) as lent:
                        await lent.fetch("SELECT * FROM item")
        finally:
            await holder.close()

    async def test_waiting_in_line_ends_in_time_and_the_pool_recovers(self, pool: Pool) -> None:
        async with connection(pool), connection(pool):
            began = time.monotonic()
            with pytest.raises(ResourceExhaustedError) as caught:
                async with connection(pool):
                    pass
            waited = time.monotonic() - began

        assert 0.3 <= waited < 2
        assert caught.value.retry_after == 1.0
        for _ in range(10):  # two at a time, as many as there are sessions: nobody waits in line
            await asyncio.gather(ping(pool), ping(pool))

    async def test_a_session_ended_by_the_server_is_unavailable_and_replaced(
        self, pool: Pool, empty_database: str
    ) -> None:
        async def lose() -> None:
            async with connection(pool) as lent:
                await _terminate_all(empty_database)
                await lent.fetchval("SELECT 1")

        with pytest.raises(UnavailableError):
            await lose()
        await ping(pool)

    async def test_a_server_that_does_not_answer_is_unavailable_until_it_does(
        self, empty_database: str
    ) -> None:
        limits = Timeouts(statement=0.2, answer_margin=0.1, acquire=0.3, connect=0.3)
        at = urlsplit(empty_database)
        async with (
            open_proxy(f"{at.hostname}:{at.port}") as proxy,
            open_pool(
                empty_database.replace(f":{at.port}/", f":{proxy.port}/"),
                schema="shop",
                application_name="shop-1",
                timeouts=limits,
            ) as pool,
        ):
            proxy.hold()
            for _ in range(2):
                with pytest.raises(UnavailableError):
                    await ping(pool)
            proxy.release()

            await ping(pool)

    async def test_sessions_lost_while_idle_are_not_noticed(
        self, pool: Pool, empty_database: str
    ) -> None:
        async with connection(pool), connection(pool):
            pass
        await _terminate_all(empty_database)

        await asyncio.gather(*(ping(pool) for _ in range(4)))

    async def test_an_outage_is_logged_in_one_line_and_its_end_in_another(
        self, pool: Pool, empty_database: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        pool.driver.set_connect_args("postgresql://nobody@127.0.0.1:1/none")
        await _terminate_all(empty_database)
        with structlog.testing.capture_logs() as lines:
            for _ in range(5):
                with pytest.raises(UnavailableError):
                    await ping(pool)
            pool.driver.set_connect_args(empty_database)
            for _ in range(5):
                await ping(pool)

        told = [(line["log_level"], line["event"]) for line in lines]
        assert told == [
            ("warning", "database cannot be reached"),
            ("info", "database reached again"),
        ]
        assert caplog.records == []

    async def test_a_primary_turned_read_only_is_unavailable_and_left(
        self, pool: Pool, empty_database: str
    ) -> None:
        async def write() -> None:
            async with connection(pool) as lent:
                await lent.execute("UPDATE item SET count = 1")

        await _set_for_database(empty_database, "default_transaction_read_only = on")
        await _terminate_all(empty_database)
        with pytest.raises(UnavailableError):
            await write()
        await _set_for_database(empty_database, "default_transaction_read_only = off")

        for _ in range(pool.driver.get_max_size()):  # as many may have been renewed too early
            with suppress(UnavailableError):
                await write()
        await write()

    async def test_our_own_faults_pass_unchanged(self, pool: Pool) -> None:
        with pytest.raises(asyncpg.UniqueViolationError):
            async with connection(pool) as lent:
                await lent.execute("INSERT INTO item (id) VALUES (1)")

    async def test_a_misused_connection_is_our_own_fault(self, pool: Pool) -> None:
        with pytest.raises(asyncpg.InterfaceError):
            async with connection(pool) as lent:
                await asyncio.gather(lent.execute("SELECT 1"), lent.execute("SELECT 2"))


class TestTransaction:
    async def test_commits_at_the_end(self, pool: Pool) -> None:
        async with transaction(pool) as lent:
            await lent.execute("UPDATE item SET count = 7 WHERE id = 1")

        assert await _count(pool) == 7

    async def test_rolls_back_on_any_exception(self, pool: Pool) -> None:
        async def fail() -> None:
            async with transaction(pool) as lent:
                await lent.execute("UPDATE item SET count = 7 WHERE id = 1")
                raise LookupError

        with pytest.raises(LookupError):
            await fail()

        assert await _count(pool) == 0

    async def test_cancelled_it_rolls_back_and_returns_the_connection(self, pool: Pool) -> None:
        written = asyncio.Event()

        async def hang() -> None:
            async with transaction(pool) as lent:
                await lent.execute("UPDATE item SET count = 7 WHERE id = 1")
                written.set()
                await lent.execute("SELECT pg_sleep(30)")

        for _ in range(4):
            written.clear()
            task = asyncio.create_task(hang())
            await asyncio.wait_for(written.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        assert await _count(pool) == 0

    async def test_a_lost_race_is_aborted(self, pool: Pool) -> None:
        async def race() -> None:
            async with transaction(pool) as late:
                await late.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                await late.fetch("SELECT * FROM item")
                async with transaction(pool) as early:
                    await early.execute("UPDATE item SET count = 1")
                await late.execute("UPDATE item SET count = 2")

        with pytest.raises(AbortedError):
            await race()
        assert await _count(pool) == 1

    async def test_one_left_idle_is_ended_by_the_server(self, pool: Pool) -> None:
        ended = asyncio.Event()

        async def dawdle() -> None:
            async with asyncio.timeout(10), transaction(pool) as lent:
                lent.add_termination_listener(lambda _: ended.set())
                await ended.wait()
                await lent.fetchval("SELECT 1")

        with pytest.raises(UnavailableError):
            await dawdle()
        await ping(pool)

    async def test_its_own_statement_timeout_ends_with_it(self, pool: Pool) -> None:
        shown = []
        async with connection(pool), transaction(pool, statement_timeout=30) as lent:
            shown.append(await lent.fetchval("SHOW statement_timeout"))
        async with connection(pool) as one, connection(pool) as other:
            shown += [await it.fetchval("SHOW statement_timeout") for it in (one, other)]

        assert shown == ["30s", "300ms", "300ms"]


class TestIdentifier:
    @pytest.mark.parametrize("name", ["", "Agent", "a-b", 'a"b', "1a", "a" * 64, "知识", "a\n"])
    def test_refuses_what_is_not_a_plain_name(self, name: str) -> None:
        with pytest.raises(ValueError, match="not a plain"):
            identifier(name)

    def test_quotes_a_plain_name(self) -> None:
        assert identifier("chunk_bge_m3") == '"chunk_bge_m3"'


async def _count(pool: Pool) -> object:
    async with connection(pool) as lent:
        return await lent.fetchval("SELECT count FROM item WHERE id = 1")


async def _set_for_database(dsn: str, setting: str) -> None:
    admin = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "off"})
    try:
        name = await admin.fetchval("SELECT current_database()")
        await admin.execute(f"ALTER DATABASE {name} SET {setting}")
    finally:
        await admin.close()


async def _terminate_all(dsn: str) -> None:
    """End all other sessions of the database, and see them gone."""
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    admin = await asyncpg.connect(dsn)
    try:
        await admin.execute(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"
        )
    finally:
        await admin.close()
