"""Sending messages to agents, and cancelling the runs that answer them."""

import uuid

from services.common.identity import Identity
from services.common.ids import NewId
from services.gateway.domain.messages import Accepted, NewMessage, RunUpdate
from services.gateway.domain.models import AgentId, RunId, SessionId
from services.gateway.domain.ports import Agents

# The namespace of request ids for sessions, each derived from the request id of a message.
_SESSION_REQUESTS = uuid.UUID("6f0d0f0e-6a54-4b52-9a9d-1f0d5f6f7a11")


class Chat:
    """Talks to agents on behalf of users."""

    def __init__(self, agents: Agents, *, new_id: NewId) -> None:
        self._agents = agents
        self._new_id = new_id

    async def send_to_session(
        self, identity: Identity, session_id: SessionId, message: NewMessage
    ) -> Accepted:
        """Send a message in a session.

        Raises:
            ServiceError: the agent service refuses it.
        """
        return await self._agents.start_run(identity, session_id, self._repeatable(message))

    async def send_to_agent(
        self, identity: Identity, agent_id: AgentId, message: NewMessage
    ) -> Accepted:
        """Send a message in a new session with an agent.

        The session's request id is derived from the message's, so that a retry finds both, wherever
        the first attempt ended.

        Raises:
            ServiceError: the agent service refuses it.
        """
        message = self._repeatable(message)
        request_id = str(uuid.uuid5(_SESSION_REQUESTS, message.request_id))
        session_id = await self._agents.open_session(identity, agent_id, request_id=request_id)
        return await self._agents.start_run(identity, session_id, message)

    async def cancel(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Request the cancellation of a run.

        Raises:
            NotFoundError: the caller has no such run.
        """
        return await self._agents.cancel_run(identity, run_id)

    def _repeatable(self, message: NewMessage) -> NewMessage:
        """The message with a request id, so that at least our own retries are harmless."""
        if message.request_id:
            return message
        return NewMessage(message.text, self._new_id(), message.when_busy)
