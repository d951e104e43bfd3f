"""Saying something."""

import uuid

from services.gateway.domain.chat import Chat
from services.gateway.domain.messages import NewMessage, RunState, WhenBusy
from services.gateway.domain.models import AgentId, RunId
from tests.gateway.domain.fixed import next_id
from tests.gateway.domain.scripted_agents import ADA, SESSION, ScriptedAgents

AGENT = AgentId("agent")


def hello(request_id: str = "") -> NewMessage:
    """A new message."""
    return NewMessage("hello", request_id, WhenBusy.REJECT)


class TestSay:
    async def test_it_is_said_as_it_came(self) -> None:
        agents = ScriptedAgents()

        accepted = await Chat(agents, new_id=next_id).send_to_session(ADA, SESSION, hello("1"))

        assert agents.messages == [(SESSION, hello("1"))]
        assert accepted.session_id == SESSION

    async def test_without_a_request_id_it_gets_one(self) -> None:
        agents = ScriptedAgents()

        await Chat(agents, new_id=lambda: "made").send_to_session(ADA, SESSION, hello())

        assert agents.messages == [(SESSION, hello("made"))]


class TestOpen:
    async def test_a_session_is_opened_first(self) -> None:
        agents = ScriptedAgents()

        accepted = await Chat(agents, new_id=next_id).send_to_agent(ADA, AGENT, hello("1"))

        assert accepted.session_id == f"session of {agents.opened[0]}"
        assert agents.messages == [(accepted.session_id, hello("1"))]

    async def test_a_repeat_finds_the_same_session_and_another_does_not(self) -> None:
        agents = ScriptedAgents()
        chat = Chat(agents, new_id=next_id)
        for request_id in ("1", "1", "2", "", ""):
            await chat.send_to_agent(ADA, AGENT, hello(request_id))

        assert agents.opened[0] == agents.opened[1]
        assert len(set(agents.opened)) == 4
        for request_id in agents.opened:
            assert uuid.UUID(request_id)


class TestCancel:
    async def test_the_run_is_told(self) -> None:
        update = await Chat(ScriptedAgents(), new_id=next_id).cancel(ADA, RunId("7"))

        assert (update.run_id, update.state) == ("7", RunState.CANCELLED)
