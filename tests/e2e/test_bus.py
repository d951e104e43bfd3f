"""How soon news arrives, over each bus and while there is none."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from chatmind.agent.v1 import run_pb2

from cli.local.ports import free_ports
from services.common.bus import postgres
from services.common.session import Connection
from tests.agent.running import ALICE, FakeKnowledge, Keys, Process, fake_knowledge, running
from tests.agent.scripted_model import ScriptedModel, says, scripted_model
from tests.nats_server import running_nats

BY_POLL = 2.0
"""Seconds in which news arrives without a hint."""

NO_POLL = 10
"""Seconds between polls where only hints can be in time."""

SOON = 5.0
"""Seconds in which a hint is heard, however busy the machine is; the poll is slower."""

LISTENING = "application_name LIKE 'chatmind-agent-%'"
TERMINATE = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {LISTENING}"
CONNECTED = f"SELECT count(*) FROM pg_stat_activity WHERE {LISTENING}"


@pytest.fixture
async def operator(database: str) -> AsyncIterator[Connection]:
    """A session of somebody else's."""
    session = await asyncpg.connect(database)
    try:
        yield session
    finally:
        await session.close()


class Watcher:
    """Somebody who watches a session in which nobody answers, and writes into it."""

    def __init__(self, alice: Any, session_id: str) -> None:
        self._alice = alice
        self._session_id = session_id
        self._watch = alice.watch(session_id, 0)
        self._said = 0

    async def delay(self) -> float:
        """Seconds until a message that was just stored is delivered."""
        clock = asyncio.get_running_loop().time
        await self._alice.say(self._session_id, f"Message {self._said}")
        self._said += 1
        began = clock()
        async with asyncio.timeout(30):
            while (await self._watch.read()).message.sequence < self._said:
                pass
        return clock() - began

    async def until_hints_arrive(self) -> None:
        """Write until one is delivered sooner after the one before it than by two polls."""
        async with asyncio.timeout(40):
            await self.delay()
            while await self.delay() > SOON:
                pass


@asynccontextmanager
async def watching(folder: Path, database: str, **settings: Any) -> AsyncIterator[Watcher]:
    """A watcher of a service that only answers calls."""
    async with running(folder, database, role="api", queue_limit=100, **settings) as service:
        session = await service.alice.create_session()
        yield Watcher(service.alice, session.id)


class TestLostHints:
    """T-S3: whatever becomes of hints, news is delivered within two seconds."""

    async def test_connections_are_ended_again_and_again(
        self, tmp_path: Path, database: str, operator: Connection
    ) -> None:
        async with watching(tmp_path, database, poll_seconds=1) as watcher:
            ended = 0

            async def terminate() -> None:
                nonlocal ended
                while True:
                    ended += await operator.fetchval(TERMINATE)
                    await asyncio.sleep(0.05)

            async with asyncio.TaskGroup() as group:
                terminating = group.create_task(terminate())
                delays = [await watcher.delay() for _ in range(5)]
                terminating.cancel()

        assert ended > 0
        assert max(delays) <= BY_POLL

    async def test_notifications_are_lost(
        self, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres, "_NOTIFY", "SELECT $1::text, $2::text[]")
        async with watching(tmp_path, database, poll_seconds=1) as watcher:
            delays = [await watcher.delay() for _ in range(5)]

        assert max(delays) <= BY_POLL

    async def test_nats_is_away(self, tmp_path: Path, database: str) -> None:
        async with running_nats() as server:
            over_nats = {"CHATMIND_BUS": "nats", "CHATMIND_NATS_URL": server.url}
            async with watching(tmp_path, database, poll_seconds=1, **over_nats) as watcher:
                await watcher.delay()
                server.kill()

                delays = [await watcher.delay() for _ in range(5)]

        assert max(delays) <= BY_POLL


class TestRegainedHints:
    async def test_postgresql_is_heard_again(
        self, tmp_path: Path, database: str, operator: Connection
    ) -> None:
        async with watching(tmp_path, database, poll_seconds=NO_POLL) as watcher:
            for _ in range(2):
                await watcher.until_hints_arrive()
                assert await operator.fetchval(TERMINATE) > 0
            await watcher.until_hints_arrive()

    async def test_nats_is_heard_again(
        self, tmp_path: Path, database: str, operator: Connection
    ) -> None:
        async with running_nats() as server:
            over_nats = {"CHATMIND_BUS": "nats", "CHATMIND_NATS_URL": server.url}
            async with watching(tmp_path, database, poll_seconds=NO_POLL, **over_nats) as watcher:
                for _ in range(2):
                    await watcher.until_hints_arrive()
                    server.kill()
                    await server.start()
                await watcher.until_hints_arrive()

                assert await operator.fetchval(CONNECTED) == 0


class TestProcesses:
    """Real processes that know of each other by NATS alone; their poll would be too slow."""

    @pytest.fixture
    async def knowledge(self, tmp_path: Path) -> AsyncIterator[FakeKnowledge]:
        async with fake_knowledge(Keys(tmp_path / "identity")) as knowledge:
            yield knowledge

    @pytest.fixture
    async def model(self) -> AsyncIterator[ScriptedModel]:
        async with scripted_model() as model:
            yield model

    @pytest.fixture
    def process(
        self, database: str, knowledge: FakeKnowledge, model: ScriptedModel
    ) -> Callable[..., Process]:
        """Makes processes of one installation."""

        def make(role: str, **variables: str) -> Process:
            told = {
                "CHATMIND_AGENT_ROLE": role,
                "CHATMIND_AGENT_KNOWLEDGE_ADDRESS": f"127.0.0.1:{knowledge.port}",
                "CHATMIND_AGENT_POLL_SECONDS": str(NO_POLL),
                "CHATMIND_BUS": "nats",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_MODEL": "scripted",
            }
            return Process(database, knowledge.keys, **{**told, **variables})

        return make

    async def test_a_message_is_answered_and_delivered_across_processes(
        self,
        process: Callable[..., Process],
        model: ScriptedModel,
        knowledge: FakeKnowledge,
        operator: Connection,
    ) -> None:
        """One takes the message, another answers it, and a third delivers the answer."""
        model.script(*[says("Hello, Alice.")] * 3)
        async with running_nats("--user", "chatmind", "--pass", "sesame") as server:
            url = {"CHATMIND_NATS_URL": f"nats://chatmind:sesame@{server.address}"}
            taking, working, delivering = (
                process(role, **url) for role in ("api", "worker", "api")
            )
            async with AsyncExitStack() as stack:
                taker = await stack.enter_async_context(taking.started())
                deliverer = await stack.enter_async_context(delivering.started())
                await stack.enter_async_context(working.started())
                alice = knowledge.keys.caller(taker, ALICE)
                session = await alice.create_session()
                watch = knowledge.keys.caller(deliverer, ALICE).watch(session.id, 0)
                for number in range(3):
                    await alice.say(session.id)
                    await asyncio.wait_for(_answered(watch, number), SOON)

                assert await operator.fetchval(CONNECTED) == 0

    async def test_one_starts_and_works_while_nats_is_away(
        self, process: Callable[..., Process], model: ScriptedModel, knowledge: FakeKnowledge
    ) -> None:
        """And does not tell its log how it would log in."""
        model.script(says("Hello, Alice."))
        nobody = f"nats://chatmind:sesame@127.0.0.1:{next(free_ports())}"
        alone = process("all", CHATMIND_NATS_URL=nobody, CHATMIND_AGENT_POLL_SECONDS="0.2")
        async with alone.started() as channel:
            alice = knowledge.keys.caller(channel, ALICE)
            session = await alice.create_session()
            await alice.ended((await alice.say(session.id)).id)
            code, logged = await alone.end(signal.SIGTERM)

        assert code == 0
        assert logged.count("session cannot be opened") == 1
        assert "sesame" not in logged

    async def test_without_an_address_none_starts(self, process: Callable[..., Process]) -> None:
        code, told = await process("api").failed()

        assert code == 2
        assert told == "CHATMIND_NATS_URL: required with CHATMIND_BUS=nats\n"


async def _answered(watch: Any, number: int) -> None:
    """Read on until the answer to a message is there and its run has ended."""
    answered = finished = False
    while not (answered and finished):
        event = await watch.read()
        answered = answered or event.message.sequence == 2 * (number + 1)
        finished = finished or event.run.state == run_pb2.Run.STATE_FINISHED
