"""What a user sent is accepted once, whoever dies and whenever the user leaves."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import asyncpg
import pytest
from grpc import aio

from services.common.ids import new_id
from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import Clients, open_door
from tests.chaos.history import Outcome, Submit
from tests.chaos.system import System, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRIES = 500
PER_SESSION = 10
AT_ONCE = 8
LEAST_ACCEPTED = 25

_WRITE = "SELECT pg_logical_emit_message(true, 'chaos', 'a commit')"
_COMMITTING = """
SELECT count(*) AS n FROM pg_stat_activity
WHERE wait_event = 'SyncRep' AND application_name = 'chatmind-agent'
"""


class TestKilled:
    """T-D5: kill -9 at each point of Submit."""

    @pytest.mark.parametrize("point", ["before", "after"])
    async def test_of_the_gateway_before_and_after_the_commit(
        self, system: System, clients: Clients, point: Literal["before", "after"]
    ) -> None:
        gateway, replica = system.gateways[0], system.replicas[0]
        session_id = await clients.open_session()
        await replica.running.stop()
        armed = await replica.start_armed(f"submit.{point}=stop@1")
        await system.serving(replica)

        async with asyncio.TaskGroup() as group:
            group.create_task(clients.submit(session_id, point))
            await armed.frozen.wait()
            await gateway.running.kill()
            armed.send(signal.SIGCONT)
            await gateway.start()

        await self.accepted_once(system, clients)

    @pytest.mark.parametrize("point", ["before", "after"])
    async def test_of_the_replica_before_and_after_the_commit(
        self, system: System, clients: Clients, point: Literal["before", "after"]
    ) -> None:
        replica = system.replicas[0]
        session_id = await clients.open_session()
        await replica.running.stop()
        armed = await replica.start_armed(f"submit.{point}=kill@1")
        await system.serving(replica)

        async with asyncio.TaskGroup() as group:
            group.create_task(clients.submit(session_id, point))
            await armed.ended.wait()
            await replica.start()

        await self.accepted_once(system, clients)

    @pytest.mark.parametrize("victim", ["gateway", "replica"])
    async def test_amid_the_commit(
        self, system: System, clients: Clients, victim: Literal["gateway", "replica"]
    ) -> None:
        slot = (system.gateways if victim == "gateway" else system.replicas)[0]
        session_id = await clients.open_session()

        async with asyncio.TaskGroup() as group, commits_hang(system):
            group.create_task(clients.submit(session_id, victim))
            await until(lambda: committing(system))
            await slot.running.kill()
            await slot.start()

        await self.accepted_once(system, clients)

    async def accepted_once(self, system: System, clients: Clients) -> None:
        """Whether the one message is there once, with its run, which completes."""
        [submit] = clients.submits
        await system.workers[0].start()

        assert submit.outcome is Outcome.OK
        assert await evidence.all_ended(system)
        assert violations(await evidence.history(system, clients.submits)) == []


class TestLeaving:
    """T-S4: a client leaves 0 to 50 ms after it submitted."""

    async def test_what_was_accepted_completes(self, system: System, clients: Clients) -> None:
        session_ids = [await clients.open_session() for _ in range(TRIES // PER_SESSION)]
        gate = asyncio.Semaphore(AT_ONCE)
        for worker in system.workers[:2]:
            await worker.start()

        async def submit_and_leave(number: int) -> Submit:
            async with gate:
                session_id = session_ids[number % len(session_ids)]
                return await leave(system, session_id, f"left{number} look")

        submits = await asyncio.gather(*(submit_and_leave(number) for number in range(TRIES)))

        assert await evidence.all_ended(system)
        history = await evidence.history(system, submits)
        assert violations(history) == []
        assert {run.stop_reason for run in history.runs} == {"end_turn"}
        assert len(history.runs) >= LEAST_ACCEPTED
        assert any(submit.outcome is Outcome.UNKNOWN for submit in submits)


async def leave(system: System, session_id: str, text: str) -> Submit:
    """Submit over a connection that is closed within 50 ms."""
    seconds = random.uniform(0, 0.05)
    async with open_door(system.gateways[0].address, system) as door:
        await door.channel.channel_ready()
        try:
            async with asyncio.timeout(seconds):
                answer = await door.send(session_id, text, request_id=new_id())
        except (TimeoutError, aio.AioRpcError):
            return Submit(session_id, text, Outcome.UNKNOWN)
    return Submit(session_id, text, Outcome.OK, answer.run_id)


async def committing(system: System) -> bool:
    """Whether some transaction is in the middle of its commit."""
    [row] = await system.fetch(_COMMITTING)
    return bool(row["n"])


@asynccontextmanager
async def commits_hang(system: System) -> AsyncIterator[None]:
    """A time in which commits get no further than the disk, waiting for a missing standby."""
    connection = await asyncpg.connect(system.dsn, server_settings={"synchronous_commit": "local"})
    try:
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await connection.execute("SELECT pg_reload_conf()")
        await until(lambda: a_commit_hangs(system))
        yield
    finally:
        await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()


async def a_commit_hangs(system: System) -> bool:
    """Whether a small commit does not get through; the settings take a moment to hold."""
    connection = await asyncpg.connect(system.dsn)
    try:
        await connection.execute(_WRITE, timeout=0.2)
    except TimeoutError:
        return True
    finally:
        connection.terminate()
    return False
