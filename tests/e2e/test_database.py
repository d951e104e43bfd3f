"""What callers notice when the database is busy, blocked, or reached through a pooler."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from chatmind.agent.v1 import agent_service_pb2 as pb
from chatmind.agent.v1 import run_pb2
from grpc import StatusCode

from services.common.session import Connection
from services.common.status import RpcFailure
from tests.agent.running import Caller, running
from tests.agent.scripted_model import says
from tests.pgbouncer import pgbouncer

POOL = 3
# A deletion has a minute's time, so nothing but the test decides how long its connection is held.
HOLD_DELETIONS = """
CREATE TABLE agent.released ();
CREATE FUNCTION agent.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM agent.released) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN OLD;
END
$$;
CREATE TRIGGER hold BEFORE DELETE ON agent.run FOR EACH ROW EXECUTE FUNCTION agent.hold();
"""
RELEASE = "INSERT INTO agent.released DEFAULT VALUES"
ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
BLOCK_SESSIONS = "LOCK TABLE agent.chat_session IN ACCESS EXCLUSIVE MODE"


@pytest.fixture
async def alice(tmp_path: Path, database: str) -> AsyncIterator[Caller]:
    """A service with few connections, as Alice calls it."""
    async with running(tmp_path, database, role="api", database_pool=POOL) as service:
        yield service.alice


@pytest.fixture
async def operator(database: str) -> AsyncIterator[Connection]:
    """A session of somebody else's."""
    session = await asyncpg.connect(database)
    try:
        yield session
    finally:
        await session.close()


class TestPoolExhausted:
    async def test_callers_are_told_in_time_and_then_served_again(
        self, alice: Caller, operator: Connection
    ) -> None:
        """T-P1: every connection is held; a call is refused within 2 to 5 seconds."""
        await operator.execute(HOLD_DELETIONS)
        async with _held(alice, operator):
            began = time.monotonic()
            failure = await alice.failure("ListAgents", pb.ListAgentsRequest())
            waited = time.monotonic() - began

        assert StatusCode.RESOURCE_EXHAUSTED is failure.code
        assert failure.retry_after == 1.0
        assert 2 <= waited <= 5
        async with asyncio.timeout(2):
            await asyncio.gather(*(_agents(alice) for _ in range(4 * POOL)))


class TestBlockedTable:
    async def test_other_calls_go_on(self, alice: Caller, operator: Connection) -> None:
        """T-P2: what needs the table fails by the lock timeout, nothing else notices."""
        session = await alice.create_session()
        slowest = 0.0
        async with operator.transaction():
            await operator.execute(BLOCK_SESSIONS)
            began = time.monotonic()
            blocked = [asyncio.create_task(_look(alice, session.id)) for _ in range(POOL - 1)]
            while not all(task.done() for task in blocked):
                before = time.monotonic()
                await _agents(alice)
                slowest = max(slowest, time.monotonic() - before)
            waited = time.monotonic() - began
            failures = [await task for task in blocked]

        assert [failure.code for failure in failures] == [StatusCode.UNAVAILABLE] * (POOL - 1)
        assert {failure.message for failure in failures} == {"The database is busy."}
        assert 1.5 <= waited <= 5
        assert slowest < 1

    async def test_a_flood_does_not_pile_up(self, alice: Caller, operator: Connection) -> None:
        """T-P2: ten times more calls than connections all end in time, and nothing stays."""
        session = await alice.create_session()
        async with operator.transaction():
            await operator.execute(BLOCK_SESSIONS)
            began = time.monotonic()
            failures = await asyncio.gather(*(_look(alice, session.id) for _ in range(10 * POOL)))
            waited = time.monotonic() - began
            left = await operator.fetchval(BLOCKED)

        typed = {StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED}
        assert typed == {failure.code for failure in failures}
        assert waited < 8
        assert left == 0
        request = pb.GetSessionRequest(session_id=session.id)
        await asyncio.gather(*(alice.call("GetSession", request) for _ in range(4 * POOL)))


class TestPooler:
    async def test_a_service_works_behind_a_pooler(
        self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, database: str
    ) -> None:
        """T-P3: statements go through PgBouncer, hints do not; the poll alone would be too slow."""
        with pgbouncer(database, tmp_path_factory.mktemp("pooler")) as pooler:
            behind: dict[str, Any] = {"CHATMIND_DATABASE_DIRECT_URL": database, "poll_seconds": 10}
            async with running(tmp_path, pooler.dsn(database), **behind) as service:
                service.model.script(*[says("Hello, Alice.")] * 5)
                alice = service.alice
                session = await alice.create_session()
                for _ in range(5):
                    run = await alice.say(session.id)
                    ended = await alice.ended(run.id, within=5)
                    assert ended.state == run_pb2.Run.STATE_FINISHED


@asynccontextmanager
async def _held(alice: Caller, operator: Connection) -> AsyncIterator[None]:
    """Every connection of the service's is held by a deletion for as long as the block lasts."""
    sessions = [await alice.create_session() for _ in range(POOL)]
    for session in sessions:
        await alice.say(session.id)
    requests = [pb.DeleteSessionRequest(session_id=session.id) for session in sessions]
    deleting = [asyncio.create_task(alice.call("DeleteSession", each)) for each in requests]
    async with asyncio.timeout(5):
        while await operator.fetchval(ASLEEP) < POOL:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    try:
        yield
    finally:
        await operator.execute(RELEASE)
        await asyncio.gather(*deleting)


async def _agents(alice: Caller) -> None:
    await alice.call("ListAgents", pb.ListAgentsRequest())


async def _look(alice: Caller, session_id: str) -> RpcFailure:
    return await alice.failure("GetSession", pb.GetSessionRequest(session_id=session_id))
