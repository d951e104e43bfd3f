"""T-P3: connections through PgBouncer in transaction mode; skipped where it is not installed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from services.common.db import Pool, Timeouts, connection, open_pool, transaction
from services.common.errors import UnavailableError
from tests.pgbouncer import PgBouncer, pgbouncer

SESSIONS = 3
SHORT = Timeouts(statement=0.5, lock=0.2)


@pytest.fixture
def pooler(empty_database: str, tmp_path: Path) -> Iterator[PgBouncer]:
    """A pooler whose clients share a few sessions."""
    with pgbouncer(empty_database, tmp_path, sessions=SESSIONS) as pooler:
        yield pooler


@pytest.fixture
def dsn(pooler: PgBouncer, empty_database: str) -> str:
    """The address of an empty database through the pooler."""
    return pooler.dsn(empty_database)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    """More connections than there are sessions, and a table `item` in the schema `shop`."""
    async with open_pool(
        dsn, schema="shop", application_name="shop-1", pooled=True, timeouts=SHORT
    ) as pool:
        async with connection(pool) as lent:
            await lent.execute("CREATE SCHEMA shop")
            await lent.execute("CREATE TABLE shop.item (id int PRIMARY KEY, tags text[])")
        yield pool


class TestPooledSession:
    async def test_names_and_limits_hold_for_every_statement(self, pool: Pool) -> None:
        shown = """SELECT ARRAY[current_schemas(false)::text] || ARRAY(
            SELECT current_setting(name) FROM unnest(ARRAY[
                'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'
            ]) AS name)"""
        told = ["{shop,public}", "500ms", "200ms", "10s"]

        async with connection(pool) as lent:
            assert told == await lent.fetchval(shown)
        async with transaction(pool) as lent:
            assert told == await lent.fetchval(shown)

    async def test_many_at_once_share_few_sessions(self, pool: Pool) -> None:
        async def add(number: int) -> int:
            async with transaction(pool) as lent:
                await lent.execute("INSERT INTO item VALUES ($1, $2)", number, ["a"])
                return int(await lent.fetchval("SELECT pg_backend_pid()"))

        used = await asyncio.gather(*(add(number) for number in range(50)))

        async with connection(pool) as lent:
            assert await lent.fetchval("SELECT count(*) FROM item WHERE tags = '{a}'") == 50
        assert len(set(used)) <= SESSIONS

    async def test_rows_are_copied(self, pool: Pool) -> None:
        rows = [(number, ["a", "b"]) for number in range(100)]

        async with connection(pool) as lent:
            await lent.copy_records_to_table("item", records=rows)
            await lent.executemany("INSERT INTO item VALUES ($1)", [(100,), (101,)])
            found = await lent.fetch("SELECT tags, count(*) FROM item GROUP BY tags ORDER BY 2")

        assert [tuple(row) for row in found] == [(None, 2), (["a", "b"], 100)]

    async def test_a_failed_statement_harms_no_other(self, pool: Pool) -> None:
        async with connection(pool) as lent:
            await lent.execute("INSERT INTO item VALUES (1)")
            with pytest.raises(asyncpg.UniqueViolationError):
                await lent.execute("INSERT INTO item VALUES (1)")
            await lent.execute("INSERT INTO item VALUES (2)")

            assert await lent.fetchval("SELECT array_agg(id) FROM item") == [1, 2]

    async def test_a_statement_over_its_time_is_unavailable(self, pool: Pool) -> None:
        with pytest.raises(UnavailableError, match="took too long"):
            async with connection(pool) as lent:
                await lent.execute("SELECT pg_sleep(30)")

    async def test_cancelled_it_rolls_back_and_returns_the_session(
        self, pool: Pool, empty_database: str
    ) -> None:
        async def hang(number: int) -> None:
            async with transaction(pool, statement_timeout=30) as lent:
                await lent.execute("INSERT INTO item VALUES ($1)", number)
                await lent.execute("SELECT pg_sleep(30)")

        hanging = [asyncio.create_task(hang(number)) for number in range(SESSIONS)]
        await _until_sleeping(empty_database, SESSIONS)
        for task in hanging:
            task.cancel()
        await asyncio.wait(hanging)

        async with connection(pool) as lent:
            assert await lent.fetchval("SELECT count(*) FROM item") == 0


class TestLeaks:
    """What one client sets is never seen by another, and nothing stays in a session."""

    async def test_nothing_is_left_in_the_sessions(self, pool: Pool, dsn: str) -> None:
        async def use(number: int) -> None:
            async with connection(pool) as lent:
                await lent.execute("INSERT INTO item VALUES ($1, $2)", number, ["a"])
                await lent.fetchrow("SELECT $1::jsonb, $2::inet, $3::int4range", {}, None, None)
            async with transaction(pool, statement_timeout=30) as lent:
                await lent.fetch("SELECT * FROM item WHERE id = $1 FOR UPDATE", number)

        await asyncio.gather(*(use(number) for number in range(60)))

        left = await _left_in_the_sessions(dsn)
        assert len(left) == SESSIONS
        assert [set()] * SESSIONS == list(left.values())

    async def test_two_clients_of_the_same_sessions_see_their_own(self, dsn: str) -> None:
        """The probe for leaks between tenants: each client looks where it looks, every time."""
        seen: dict[str, list[str]] = {"north": [], "south": []}

        async def look(pool: Pool) -> None:
            async with connection(pool) as lent:
                seen[pool.schema].append(await lent.fetchval("SELECT owner FROM place"))

        async with AsyncExitStack() as stack:
            pools = [
                await stack.enter_async_context(
                    open_pool(dsn, schema=schema, application_name=schema, pooled=True)
                )
                for schema in seen
            ]
            for pool in pools:
                async with connection(pool) as lent:
                    await lent.execute(f"CREATE SCHEMA {pool.schema}")
                    await lent.execute("CREATE TABLE place (owner text)")
                    await lent.execute("INSERT INTO place VALUES ($1)", pool.schema)
            await asyncio.gather(*(look(pools[number % 2]) for number in range(200)))

        assert seen == {schema: [schema] * 100 for schema in seen}


async def _until_sleeping(direct_dsn: str, count: int) -> None:
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    session = await asyncpg.connect(direct_dsn)
    try:
        async with asyncio.timeout(10):
            while await session.fetchval(asleep) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await session.close()


async def _left_in_the_sessions(dsn: str) -> dict[int, set[str]]:
    """For each session of the pooler's: what is set, prepared, locked or listened to there.

    All are looked at in the same moment, by as many transactions. Its clients' names and encoding
    are what PgBouncer itself keeps apart.
    """
    left = """
        SELECT name FROM pg_settings
        WHERE source = 'session' AND setting <> reset_val
          AND name NOT IN ('application_name', 'client_encoding')
        UNION ALL SELECT 'prepared ' || statement FROM pg_prepared_statements
        UNION ALL SELECT 'listens to ' || channel FROM pg_listening_channels() AS channel
        UNION ALL SELECT 'lock ' || objid FROM pg_locks
        WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    """
    async with AsyncExitStack() as stack:
        found = {}
        for _ in range(SESSIONS):
            session = await asyncpg.connect(dsn, statement_cache_size=0)
            stack.push_async_callback(session.close)
            await stack.enter_async_context(session.transaction())
            pid = await session.fetchval("SELECT pg_backend_pid()")
            found[pid] = {row["name"] for row in await session.fetch(left)}
        return found
