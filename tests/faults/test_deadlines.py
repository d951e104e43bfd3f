"""T-S12: a caller's deadline reaches the database."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import grpc
import pytest
from chatmind.agent.v1 import agent_service_pb2 as pb
from grpc import aio

from services.common.session import Connection
from tests.agent.running import running

BLOCK_SESSIONS = "LOCK TABLE agent.chat_session IN ACCESS EXCLUSIVE MODE"
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'
"""
DEADLINE = 0.3
LOCK_TIMEOUT = 2.0
"""Seconds after which the database itself would give up."""


@asynccontextmanager
async def blocked(database: str) -> AsyncIterator[Connection]:
    """A time in which no session can be read; gives a connection of one who looks on."""
    operator, onlooker = await asyncpg.connect(database), await asyncpg.connect(database)
    try:
        async with operator.transaction():
            await operator.execute(BLOCK_SESSIONS)
            yield onlooker
    finally:
        await operator.close()
        await onlooker.close()


@pytest.mark.parametrize("leaves", [False, True], ids=["its deadline passes", "its caller leaves"])
async def test_a_statement_ends_with_its_call(tmp_path: Path, database: str, leaves: bool) -> None:
    """pg_stat_activity shows it while the call lasts, and no longer, long before any timeout."""
    async with running(tmp_path, database, role="api") as service:
        alice = service.alice
        session = await alice.create_session()
        request = pb.GetSessionRequest(session_id=session.id)
        async with blocked(database) as onlooker:
            began = time.monotonic()
            call = alice.agents.GetSession(
                request, metadata=alice.metadata, timeout=20 if leaves else DEADLINE
            )
            await statements(onlooker, 1)
            if leaves:
                call.cancel()
            with pytest.raises((aio.AioRpcError, asyncio.CancelledError)):
                await call
            await statements(onlooker, 0)
            seconds = time.monotonic() - began
        again = await alice.call("GetSession", request)

    ended = grpc.StatusCode.CANCELLED if leaves else grpc.StatusCode.DEADLINE_EXCEEDED
    assert await call.code() is ended
    assert seconds < LOCK_TIMEOUT / 2
    assert again.session.id == session.id


async def statements(onlooker: Connection, count: int) -> None:
    """Wait until so many statements wait for the lock."""
    async with asyncio.timeout(10):
        while await onlooker.fetchval(WAITING) != count:
            pass
