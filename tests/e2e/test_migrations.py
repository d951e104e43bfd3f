"""Migrations as operators meet them: beside callers, beside each other, and killed."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest
from chatmind.agent.v1 import agent_service_pb2 as pb

from services.agent.store.postgres.schema import MIGRATIONS, SCHEMA
from services.common.migrate import Migration, load_migrations, migrate
from tests.agent.running import Caller, Keys, running

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
ROWS = 1_000_000
CALLERS = 4
# Foreign keys are not checked: the rows belong to nobody.
FILL = """
SET session_replication_role = replica;
INSERT INTO agent.chat_message (
    session_id, sequence, id, run_id, turn, step, role, text, wire_size, create_time)
SELECT session, n % 1000 + 1, session, session, n % 1000 + 1, 0, 'user', 'Hello', 100, now()
FROM generate_series(0, {rows} - 1) AS n,
    LATERAL (SELECT lpad(to_hex(n / 1000), 32, '0')::uuid) AS owner (session)
"""
LONGEST_WAIT = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE application_name = 'chatmind-agent'
"""
WAITING_TO_MIGRATE = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE application_name = 'chatmind-migrate' AND wait_event_type = 'Lock'
"""
MIGRATING = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%public.go%PERFORM%'"
HELD_UP = """
CREATE TABLE item (id int);
DO $$ BEGIN
    WHILE to_regclass('public.go') IS NULL LOOP PERFORM pg_sleep(0.02); END LOOP;
END $$;
"""
BY_HAND = """
import asyncio, sys
from pathlib import Path
from services.common.migrate import load_migrations, migrate
done = asyncio.run(migrate(sys.argv[1], load_migrations(Path(sys.argv[2])), schema="shop"))
print("applied", len(done))
"""


def planted(number: int, name: str, sql: str) -> Migration:
    """A migration that a next release could bring."""
    return Migration(number, f"{number:04}_{name}.sql", sql)


class TestUnderLoad:
    async def test_callers_do_not_notice_a_migration_of_a_large_table(
        self, tmp_path: Path, database: str
    ) -> None:
        """T-P4: a million messages get a column and an index; no call fails, no lock is long."""
        known = load_migrations(MIGRATIONS)
        column = planted(len(known) + 1, "mood", "ALTER TABLE chat_message ADD mood text")
        index = planted(
            len(known) + 2,
            "mood_index",
            "-- no transaction\nCREATE INDEX CONCURRENTLY of_mood ON chat_message (mood, id)",
        )
        async with _session(database) as session:
            await session.execute(FILL.format(rows=ROWS), timeout=250)
        async with (
            running(tmp_path, database, role="api", database_pool=CALLERS) as service,
            _load(service.alice, database) as load,
            _session(database) as reader,
        ):
            async with reader.transaction():
                await reader.execute("SELECT * FROM agent.chat_message LIMIT 1")
                migrating = asyncio.create_task(
                    migrate(database, [*known, column, index], schema=SCHEMA)
                )
                await _until(database, WAITING_TO_MIGRATE)
                await load.go_on(calls=50)
            done = await migrating
            await load.go_on(calls=20)

        assert done == (column, index)
        assert load.failures == []
        assert 0 < load.longest_wait < 2
        assert await _one(
            database, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'agent.of_mood'::regclass"
        )


class TestProcesses:
    async def test_all_at_once_apply_each_file_once(
        self, tmp_path: Path, empty_database: str
    ) -> None:
        """T-P5: two jobs for each service start together; all succeed, nothing happens twice."""
        services = ["agent", "gateway", "knowledge"]
        started = [
            await _start(_job(service), empty_database, tmp_path) for service in services * 2
        ]
        logs = [(await process.communicate())[1].decode() for process in started]

        assert [process.returncode for process in started] == [0] * len(started)
        applied = Counter(
            (line.split('"migration": "')[1].partition('"')[0])
            for log in logs
            for line in log.splitlines()
            if "migration applied" in line
        )
        files = Counter(file.name for file in (ROOT / "services").glob("*/store/migrations/*.sql"))
        assert applied == files

    async def test_one_takes_over_from_another_that_was_killed(
        self, tmp_path: Path, empty_database: str
    ) -> None:
        """T-P5: `kill -9` amid a file; whoever waited applies it, and a third finds it done."""
        (tmp_path / "0001_item.sql").write_text(HELD_UP)
        command = ["-c", BY_HAND, empty_database, str(tmp_path)]
        first = await _start(command, empty_database, tmp_path)
        await _until(empty_database, MIGRATING)
        second = await _start(command, empty_database, tmp_path)

        first.send_signal(signal.SIGKILL)
        await first.wait()
        await _one(empty_database, "CREATE TABLE public.go ()")
        told = [(await process.communicate())[0] for process in (first, second)]
        third = await _start(command, empty_database, tmp_path)
        told.append((await third.communicate())[0])

        assert [said.splitlines()[-1:] for said in told] == [[], [b"applied 1"], [b"applied 0"]]
        assert await _one(empty_database, "SELECT count(*) FROM shop.item") == 0


@dataclass
class _Load:
    """Callers at work, and what became of them.

    Attributes:
        calls: how many were answered.
        failures: those that were not.
        longest_wait: seconds that one of them waited for a lock.
    """

    calls: int = 0
    failures: list[str] = field(default_factory=list)
    longest_wait: float = 0.0

    async def go_on(self, *, calls: int) -> None:
        """Return after so many more calls."""
        enough = self.calls + calls
        async with asyncio.timeout(60):
            while self.calls < enough:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def make(self, call: Awaitable[object]) -> None:
        """Make a call and count it, or its failure."""
        try:
            await call
        except Exception as error:  # noqa: BLE001
            self.failures.append(repr(error))
        self.calls += 1


@asynccontextmanager
async def _load(alice: Caller, database: str) -> AsyncIterator[_Load]:
    """Callers who write and read messages for as long as the block lasts."""
    load, ended = _Load(), asyncio.Event()
    agent = await alice.create_agent()

    async def converse() -> None:
        while not ended.is_set():
            session = await alice.create_session(agent.id)
            await load.make(alice.say(session.id))
            await load.make(alice.messages(session.id))
            request = pb.DeleteSessionRequest(session_id=session.id)
            await load.make(alice.call("DeleteSession", request))

    async def sample() -> None:
        async with _session(database) as session:
            while not ended.is_set():
                wait = await session.fetchval(LONGEST_WAIT)
                load.longest_wait = max(load.longest_wait, wait)
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(converse())
        group.create_task(sample())
        try:
            yield load
        finally:
            ended.set()


def _job(service: str) -> list[str]:
    return ["-m", f"services.{service}", "migrate"]


async def _start(arguments: list[str], dsn: str, folder: Path) -> Process:
    Keys(folder / "identity")
    variables = {
        f"CHATMIND_{name}_IDENTITY_DIR": str(folder) for name in ("AGENT", "GATEWAY", "KNOWLEDGE")
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
            "CHATMIND_DATABASE_URL": dsn,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    session = await asyncpg.connect(dsn)
    try:
        yield session
    finally:
        await session.close()


async def _one(dsn: str, query: str) -> object:
    async with _session(dsn) as session:
        return await session.fetchval(query)


async def _until(dsn: str, condition: str) -> None:
    async with asyncio.timeout(30), _session(dsn) as session:
        while not await session.fetchval(condition):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
