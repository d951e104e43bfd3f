"""GatewayService over gRPC: sends messages and streams a session."""

from chatmind.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc

from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.gateway.api import convert
from services.gateway.api.streaming import ClientStreams
from services.gateway.domain.chat import Chat
from services.gateway.domain.messages import Event
from services.gateway.domain.models import AgentId, RunId, SessionId
from services.gateway.domain.stream import Stream


class GatewayServicer(gateway_service_pb2_grpc.GatewayServiceServicer):
    """Answers the methods of GatewayService."""

    def __init__(self, chat: Chat, stream: Stream, streams: ClientStreams) -> None:
        self._chat = chat
        self._stream = stream
        self._streams = streams

    async def SendMessage(
        self, request: gateway_service_pb2.SendMessageRequest, context: Context
    ) -> gateway_service_pb2.SendMessageResponse:
        """Send a message; the answer comes on the stream."""
        identity, message = current_identity(), convert.to_new_message(request)
        if request.WhichOneof("to") == "session_id":
            accepted = await self._chat.send_to_session(
                identity, SessionId(request.session_id), message
            )
        else:
            accepted = await self._chat.send_to_agent(identity, AgentId(request.agent_id), message)
        return convert.from_accepted(accepted)

    async def StreamMessages(  # type: ignore[override]  # a coroutine that writes
        self, request: gateway_service_pb2.StreamMessagesRequest, context: Context
    ) -> None:
        """Stream the events after a sequence."""
        after = request.after_sequence if request.HasField("after_sequence") else None
        async with self._streams.open(context, ends_itself=True) as stream:
            stream.through = after

            async def send(event: Event, through: int) -> None:
                await stream.write(convert.from_event(event, through))
                stream.through = through

            session_id = SessionId(request.session_id)
            await self._stream.follow(current_identity(), session_id, send, after=after)

    async def CancelRun(
        self, request: gateway_service_pb2.CancelRunRequest, context: Context
    ) -> gateway_service_pb2.CancelRunResponse:
        """Request the cancellation of a run."""
        update = await self._chat.cancel(current_identity(), RunId(request.run_id))
        return gateway_service_pb2.CancelRunResponse(run=convert.from_run_update(update))
