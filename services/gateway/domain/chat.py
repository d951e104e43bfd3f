"""Saying something, and stopping the answer."""

import uuid

from services.common.identity import Identity
from services.common.ids import NewId
from services.gateway.domain.messages import Accepted, RunUpdate, Said
from services.gateway.domain.models import AgentId, RunId, SessionId
from services.gateway.domain.ports import Agents

_OPENING = uuid.UUID("6f0d0f0e-6a54-4b52-9a9d-1f0d5f6f7a11")


class Chat:
    """Talks to agents on behalf of users."""

    def __init__(self, agents: Agents, *, new_id: NewId) -> None:
        self._agents = agents
        self._new_id = new_id

    async def say(self, identity: Identity, session_id: SessionId, said: Said) -> Accepted:
        """Say something in a session.

        Raises:
            ServiceError: as the agent service refuses it.
        """
        return await self._agents.start_run(identity, session_id, self._repeatable(said))

    async def open(self, identity: Identity, agent_id: AgentId, said: Said) -> Accepted:
        """Say something in a new session with an agent.

        The session's request id follows from the message's, so that a repeat finds both, wherever
        the first attempt ended.

        Raises:
            ServiceError: as the agent service refuses it.
        """
        said = self._repeatable(said)
        opening = str(uuid.uuid5(_OPENING, said.request_id))
        session_id = await self._agents.open_session(identity, agent_id, request_id=opening)
        return await self._agents.start_run(identity, session_id, said)

    async def cancel(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Ask for a run to be stopped.

        Raises:
            NotFoundError: the caller has no such run.
        """
        return await self._agents.cancel_run(identity, run_id)

    def _repeatable(self, said: Said) -> Said:
        """The same with a request id, so that at least our own repeats are harmless."""
        if said.request_id:
            return said
        return Said(said.text, self._new_id(), said.when_busy)
