"""Messages in and messages out, with a real agent service behind the gateway."""

import uuid

import grpc
import pytest
from chatmind.gateway.v1 import gateway_service_pb2 as pb

from services.common.status import failure_of
from tests.gateway.installation import ADMIN, Installation, bearer


class TestSendMessage:
    async def test_a_message_to_an_agent_opens_a_session(self, gateway: Installation) -> None:
        request = pb.SendMessageRequest(agent_id=gateway.agent.agent_id, text="hello")

        sent = await gateway.messages.SendMessage(request, metadata=bearer(gateway.key))

        session = gateway.agent.sessions[sent.session_id]
        assert session.owner == ADMIN
        assert [message.text for message in session.messages] == ["hello"]
        assert sent == pb.SendMessageResponse(
            session_id=session.id,
            run_id=session.messages[0].run_id,
            message_id=session.messages[0].id,
            sequence=1,
        )
