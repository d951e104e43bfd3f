"""The client of the agent service, against a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.errors import InvalidArgumentError, NotFoundError, UnavailableError
from services.common.identity import Identity, IdentitySigner, Role, load_signing_key
from services.gateway.clients.agent import AgentClient
from services.gateway.domain.errors import ServiceUnavailableError
from services.gateway.domain.messages import NewMessage, WhenBusy
from services.gateway.domain.models import AgentId, RunId, SessionId
from tests.gateway.fake_agent import FakeAgent
from tests.gateway.installation import (
    MESSAGE_BYTES,
    Upstream,
    serving_agent,
    write_identity_keys,
)
from tests.servicers import incomplete

ADA = Identity("acme", "ada", frozenset({Role.VIEWER}))
HELLO = NewMessage("hello", "0190a5b8-0000-7000-8000-000000000000", WhenBusy.ENQUEUE)


@pytest.fixture
def fake() -> FakeAgent:
    return incomplete(FakeAgent)()


@pytest.fixture
async def server(fake: FakeAgent, tmp_path: Path) -> AsyncIterator[Upstream]:
    write_identity_keys(tmp_path)
    upstream = serving_agent(fake, tmp_path)
    await upstream.start()
    yield upstream
    await upstream.kill()


@pytest.fixture
async def client(server: Upstream, tmp_path: Path) -> AsyncIterator[AgentClient]:
    key = load_signing_key(tmp_path / "gateway.pem")
    signer = IdentitySigner("gateway", key, audience="agent", clock=now)
    target = f"127.0.0.1:{server.port}"
    async with open_channel(target, max_message_bytes=MESSAGE_BYTES) as channel:
        yield AgentClient(channel, OutgoingCalls(signer))


class TestAgentClient:
    async def test_every_call_is_made_for_the_user(
        self, client: AgentClient, fake: FakeAgent
    ) -> None:
        session_id = await client.open_session(ADA, AgentId(fake.agent_id), request_id="")
        accepted = await client.start_run(ADA, session_id, HELLO)
        await client.cancel_run(ADA, accepted.run_id)
        sequence = await client.last_sequence(ADA, session_id)

        assert (accepted.session_id, accepted.sequence, sequence) == (session_id, 1, 1)
        assert [identity for identity, _ in fake.seen] == [ADA] * 4

    async def test_a_server_that_is_restarted_meanwhile_is_asked_again(
        self, client: AgentClient, fake: FakeAgent, server: Upstream
    ) -> None:
        session = fake.open(ADA)
        await server.kill()

        async with asyncio.TaskGroup() as group:
            run = group.create_task(client.start_run(ADA, SessionId(session.id), HELLO))
            group.create_task(server.start())

        assert run.result().sequence == 1

    async def test_one_that_stays_away_is_soon_told(
        self, client: AgentClient, server: Upstream
    ) -> None:
        await server.kill()
        began = time.monotonic()

        with pytest.raises(ServiceUnavailableError):
            await client.cancel_run(ADA, RunId("0190a5b8-0000-7000-8000-000000000000"))

        assert time.monotonic() - began < 5

    async def test_what_the_service_itself_lacks_is_not_asked_again(
        self, client: AgentClient, fake: FakeAgent
    ) -> None:
        fake.refusals.append(UnavailableError("The database is away."))

        with pytest.raises(UnavailableError, match="The database is away"):
            await client.last_sequence(ADA, SessionId("0190a5b8-0000-7000-8000-000000000000"))

        assert len(fake.seen) == 1

    async def test_refused_fields_are_named_as_our_own_clients_know_them(
        self, client: AgentClient, fake: FakeAgent
    ) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await client.open_session(ADA, AgentId("no uuid"), request_id="")

        assert [violation.field for violation in caught.value.violations] == ["agent_id"]
        assert caught.value.message.startswith("agent_id: ")

    async def test_another_users_session_is_unknown(
        self, client: AgentClient, fake: FakeAgent
    ) -> None:
        theirs = fake.open(Identity("acme", "bob"))

        with pytest.raises(NotFoundError):
            await client.last_sequence(ADA, SessionId(theirs.id))
