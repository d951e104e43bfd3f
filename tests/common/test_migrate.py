"""Migrations, on a real server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from services.common.db import connection, open_pool
from services.common.errors import UnavailableError
from services.common.migrate import (
    Migration,
    MigrationError,
    load_migrations,
    migrate,
    pending,
    wait_until_current,
)
from services.common.session import Connection

FIRST = Migration(1, "0001_item.sql", "CREATE TABLE item (id int PRIMARY KEY)")
SECOND = Migration(
    2, "0002_count.sql", "ALTER TABLE item ADD count int; INSERT INTO item VALUES (1)"
)

INDEX = Migration(
    2, "0002_index.sql", "-- no transaction\nCREATE INDEX CONCURRENTLY of_id ON item (id);\n"
)
NOBODY_MIGRATES = """
SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'chatmind-migrate')
"""
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('shop.of_id')"


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Connection]:
    session = await asyncpg.connect(dsn)
    try:
        yield session
    finally:
        await session.close()


async def _one(dsn: str, query: str) -> object:
    async with _session(dsn) as session:
        return await session.fetchval(query)


def _write(folder: Path, **files: str) -> Path:
    for name, sql in files.items():
        (folder / f"{name.removeprefix('n')}.sql").write_text(sql, encoding="utf-8")
    return folder


class TestLoadMigrations:
    def test_gives_the_files_in_order(self, tmp_path: Path) -> None:
        _write(tmp_path, n0002_b="SELECT 2", n0001_a="SELECT 1")

        loaded = load_migrations(tmp_path)

        assert loaded == (
            Migration(1, "0001_a.sql", "SELECT 1"),
            Migration(2, "0002_b.sql", "SELECT 2"),
        )

    @pytest.mark.parametrize(
        ("names", "complaint"),
        [
            (["n0002_b"], "0001 is missing"),
            (["n0001_a", "n0003_c"], "0002 is missing"),
            (["n0001_a", "n0001_b"], "there twice"),
            (["n1_a"], "named like"),
            (["n0001-a"], "named like"),
        ],
    )
    def test_refuses_holes_doubles_and_odd_names(
        self, tmp_path: Path, names: list[str], complaint: str
    ) -> None:
        _write(tmp_path, **dict.fromkeys(names, "SELECT 1"))

        with pytest.raises(MigrationError, match=complaint):
            load_migrations(tmp_path)

    def test_the_digest_does_not_depend_on_the_line_ends_of_a_checkout(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "0001_a.sql"
        digests = set()
        for text in (b"SELECT 1;\nSELECT 2;\n", b"SELECT 1;\r\nSELECT 2;\r\n"):
            file.write_bytes(text)
            digests.add(load_migrations(tmp_path)[0].digest)

        assert len(digests) == 1


class TestMigrate:
    async def test_applies_in_order_and_only_what_is_missing(self, empty_database: str) -> None:
        first = await migrate(empty_database, [FIRST], schema="shop")
        second = await migrate(empty_database, [FIRST, SECOND], schema="shop")
        third = await migrate(empty_database, [FIRST, SECOND], schema="shop")

        assert (first, second, third) == ((FIRST,), (SECOND,), ())
        assert await _one(empty_database, "SELECT count(*) FROM shop.item") == 1

    async def test_records_name_and_hash_in_the_schema(self, empty_database: str) -> None:
        await migrate(empty_database, [FIRST], schema="shop")

        async with _session(empty_database) as session:
            rows = await session.fetch("SELECT number, name, digest FROM shop.schema_migration")
        assert [tuple(row) for row in rows] == [(1, FIRST.name, FIRST.digest)]

    async def test_schemas_do_not_mix(self, empty_database: str) -> None:
        await migrate(empty_database, [FIRST], schema="shop")
        await migrate(empty_database, [FIRST, SECOND], schema="bank")

        assert await _one(empty_database, "SELECT count(*) FROM shop.item") == 0
        assert await _one(empty_database, "SELECT count(*) FROM bank.item") == 1

    @pytest.mark.parametrize(
        "changed",
        [
            Migration(1, FIRST.name, FIRST.sql + " "),
            Migration(1, "0001_renamed.sql", FIRST.sql),
        ],
    )
    async def test_an_applied_file_that_changed_is_refused(
        self, empty_database: str, changed: Migration
    ) -> None:
        await migrate(empty_database, [FIRST], schema="shop")

        with pytest.raises(MigrationError, match=r"0001_\w+\.sql is not what was applied"):
            await migrate(empty_database, [changed, SECOND], schema="shop")
        assert await _one(empty_database, "SELECT count(*) FROM shop.schema_migration") == 1

    async def test_a_database_ahead_of_the_release_is_left_alone(self, empty_database: str) -> None:
        await migrate(empty_database, [FIRST, SECOND], schema="shop")

        assert await migrate(empty_database, [FIRST], schema="shop") == ()

    async def test_a_file_that_fails_leaves_no_trace_and_keeps_those_before(
        self, empty_database: str
    ) -> None:
        broken = Migration(2, "0002_x.sql", "CREATE TABLE other (id int); SELECT secret FROM item")

        with pytest.raises(MigrationError) as caught:
            await migrate(empty_database, [FIRST, broken], schema="shop")

        assert str(caught.value) == "0002_x.sql cannot be applied; see the log."
        assert await _one(empty_database, "SELECT to_regclass('shop.other')") is None
        assert await _one(empty_database, "SELECT max(number) FROM shop.schema_migration") == 1
        assert await migrate(empty_database, [FIRST, SECOND], schema="shop") == (SECOND,)

    async def test_many_at_once_apply_everything_once(self, empty_database: str) -> None:
        extension = Migration(3, "0003_vector.sql", "CREATE EXTENSION IF NOT EXISTS vector")
        files = [FIRST, SECOND, extension]

        done = await asyncio.gather(
            *(migrate(empty_database, files, schema=f"s{number % 2}") for number in range(8))
        )

        assert sorted(map(len, done)) == [0] * 6 + [3] * 2

    async def test_a_busy_table_is_waited_for_without_holding_up_others(
        self, empty_database: str
    ) -> None:
        await migrate(empty_database, [FIRST], schema="shop")
        async with _session(empty_database) as reader:
            async with reader.transaction():
                await reader.execute("SELECT * FROM shop.item")
                running = asyncio.create_task(
                    migrate(empty_database, [FIRST, SECOND], schema="shop", lock_timeout=0.05)
                )
                async with asyncio.timeout(10), _session(empty_database) as other:
                    for _ in range(20):
                        await other.execute("SELECT pg_sleep(0.02); SELECT * FROM shop.item")
                assert not running.done()
            assert await asyncio.wait_for(running, 10) == (SECOND,)

    async def test_waiting_for_another_run_ends_in_time(self, empty_database: str) -> None:
        slow = Migration(1, "0001_slow.sql", "SELECT pg_sleep(30)")
        first = asyncio.create_task(migrate(empty_database, [slow], schema="shop"))
        await _until_running(empty_database, "%pg_sleep%")

        with pytest.raises(UnavailableError):
            await migrate(empty_database, [FIRST], schema="bank", timeout=0.3)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_killed_in_the_middle_it_is_done_again_from_there(
        self, empty_database: str, tmp_path: Path
    ) -> None:
        folder = _write(tmp_path, n0001_a=FIRST.sql, n0002_b="SELECT pg_sleep(60)")
        process = await _start_elsewhere(empty_database, folder)
        await _until_running(empty_database, "%pg_sleep(60)%")
        process.send_signal(signal.SIGKILL)
        await process.wait()
        _write(folder, n0002_b=SECOND.sql)

        done = await migrate(empty_database, load_migrations(folder), schema="shop", timeout=15)

        assert [migration.number for migration in done] == [2]
        assert await _one(empty_database, "SELECT count(*) FROM shop.item") == 1

    @pytest.mark.parametrize("line", ["-- no transaction", "-- no transaction  "])
    async def test_a_file_says_that_it_cannot_run_in_a_transaction(
        self, empty_database: str, line: str
    ) -> None:
        index = replace(INDEX, sql=f"{line}\nCREATE INDEX CONCURRENTLY of_id ON item (id)")

        await migrate(empty_database, [FIRST, index], schema="shop")

        assert await _one(empty_database, VALID) is True
        assert await _one(empty_database, "SELECT max(number) FROM shop.schema_migration") == 2

    async def test_a_file_that_does_not_say_so_is_refused(self, empty_database: str) -> None:
        plain = replace(INDEX, sql="CREATE INDEX CONCURRENTLY of_id ON item (id)")

        with pytest.raises(MigrationError, match=INDEX.name):
            await migrate(empty_database, [FIRST, plain], schema="shop")

    async def test_an_index_may_wait_longer_than_everything_else(self, empty_database: str) -> None:
        await migrate(empty_database, [FIRST], schema="shop")
        async with _session(empty_database) as writer:
            async with writer.transaction():
                await writer.execute("INSERT INTO shop.item VALUES (1)")
                building = asyncio.create_task(
                    migrate(
                        empty_database,
                        [FIRST, INDEX],
                        schema="shop",
                        lock_timeout=0.05,
                        timeout=0.3,
                    )
                )
                done, _ = await asyncio.wait({building}, timeout=1)
            assert not done
            assert await asyncio.wait_for(building, 10) == (INDEX,)

    async def test_an_index_that_was_left_half_built_is_built_anew(
        self, empty_database: str, tmp_path: Path
    ) -> None:
        """T-P5: `kill -9` while it waits for a transaction that is older than the index."""
        folder = _write(tmp_path, n0001_a=FIRST.sql, n0002_b=INDEX.sql)
        await migrate(empty_database, load_migrations(folder)[:1], schema="shop")
        async with _session(empty_database) as writer, writer.transaction():
            await writer.execute("INSERT INTO shop.item VALUES (1)")
            process = await _start_elsewhere(empty_database, folder)
            await _until(empty_database, "SELECT to_regclass('shop.of_id') IS NOT NULL")
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await _until(empty_database, NOBODY_MIGRATES)
        assert await _one(empty_database, VALID) is False

        done = await migrate(empty_database, load_migrations(folder), schema="shop", timeout=15)

        assert [migration.number for migration in done] == [2]
        assert await _one(empty_database, VALID) is True

    async def test_a_database_that_is_away_is_unavailable(self) -> None:
        with pytest.raises(UnavailableError):
            await migrate("postgresql://u:p@127.0.0.1:1/none", [FIRST], schema="shop")

    async def test_refuses_an_odd_schema(self, empty_database: str) -> None:
        with pytest.raises(ValueError, match="not a plain"):
            await migrate(empty_database, [FIRST], schema='shop"; DROP')


class TestPending:
    async def test_tells_what_is_missing(self, empty_database: str) -> None:
        found = []
        async with open_pool(empty_database, schema="shop", application_name="t") as pool:
            found.append(await pending(pool, [FIRST, SECOND]))
            await migrate(empty_database, [FIRST], schema="shop")
            found.append(await pending(pool, [FIRST, SECOND]))
            await migrate(empty_database, [FIRST, SECOND], schema="shop")
            found.append(await pending(pool, [FIRST, SECOND]))
            found.append(await pending(pool, [FIRST]))

        assert found == [(FIRST, SECOND), (SECOND,), (), ()]

    async def test_refuses_a_changed_file_too(self, empty_database: str) -> None:
        await migrate(empty_database, [FIRST], schema="shop")

        async with open_pool(empty_database, schema="shop", application_name="t") as pool:
            with pytest.raises(MigrationError):
                await pending(pool, [Migration(1, FIRST.name, "SELECT 1")])


class TestWaitUntilCurrent:
    async def test_returns_once_somebody_has_migrated(self, empty_database: str) -> None:
        async with open_pool(empty_database, schema="shop", application_name="t") as pool:
            waiting = asyncio.create_task(wait_until_current(pool, [FIRST], timeout=10))
            await migrate(empty_database, [FIRST], schema="shop")
            await waiting

            async with connection(pool) as lent:
                assert await lent.fetchval("SELECT count(*) FROM item") == 0

    async def test_gives_up_in_time(self, empty_database: str) -> None:
        async with open_pool(empty_database, schema="shop", application_name="t") as pool:
            with pytest.raises(UnavailableError, match="not up to date"):
                await wait_until_current(pool, [FIRST], timeout=0.2)


_ELSEWHERE = """
import asyncio, sys
from pathlib import Path
from services.common.migrate import load_migrations, migrate
asyncio.run(migrate(sys.argv[1], load_migrations(Path(sys.argv[2])), schema="shop"))
"""


async def _start_elsewhere(dsn: str, folder: Path) -> asyncio.subprocess.Process:
    root = Path(__file__).parent.parent.parent
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _ELSEWHERE, dsn, str(folder), cwd=root, env=os.environ
    )


async def _until_running(dsn: str, pattern: str) -> None:
    """Wait until the server runs a statement like `pattern`."""
    query = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE $1"
    await _until(dsn, f"{query} AND pid <> pg_backend_pid()", pattern)


async def _until(dsn: str, condition: str, *arguments: object) -> None:
    async with asyncio.timeout(20), _session(dsn) as session:
        while not await session.fetchval(condition, *arguments):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
