"""A conversation with an agent: send, then follow the run until it ends."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from chatmind.agent.v1 import agent_pb2, agent_service_pb2
from chatmind.gateway.v1 import gateway_service_pb2, message_pb2

from cli.client import CALL_SECONDS, Gateway, failed_call
from cli.errors import CommandError

FINAL_STATES = {
    message_pb2.RunUpdate.STATE_FINISHED,
    message_pb2.RunUpdate.STATE_ERROR,
    message_pb2.RunUpdate.STATE_CANCELLED,
}

_MOST_RECONNECTS = 10
_RECONNECT_SECONDS = 0.5

Event = gateway_service_pb2.StreamMessagesResponse


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was accepted.

    Attributes:
        session_id: its session.
        run_id: the run that answers it.
        sequence: its place; what follows it is the answer.
    """

    session_id: str
    run_id: str
    sequence: int


def find_agent(gateway: Gateway, name: str) -> agent_pb2.Agent:
    """The first agent of this name that the caller can see; with an empty name, the first of all.

    Raises:
        CommandError: there is none.
    """
    request = agent_service_pb2.ListAgentsRequest(display_name=name, page_size=1)
    agents = gateway.agents.ListAgents(request, timeout=CALL_SECONDS).agents
    if not agents:
        wanted = f"no agent is called {name!r}" if name else "there is no agent yet"
        raise CommandError(f"{wanted}; create one with `chatmind agent create`")
    return agents[0]


def send(gateway: Gateway, text: str, *, session_id: str = "", agent_id: str = "") -> Sent:
    """Sends a message: to a session, or to an agent in a new session."""
    request = gateway_service_pb2.SendMessageRequest(text=text, request_id=str(uuid.uuid4()))
    if session_id:
        request.session_id = session_id
    else:
        request.agent_id = agent_id
    response = gateway.messages.SendMessage(request, timeout=CALL_SECONDS, wait_for_ready=True)
    return Sent(response.session_id, response.run_id, response.sequence)


def answer(gateway: Gateway, sent: Sent) -> Iterator[Event]:
    """Every event after the message, up to the end of its run; a broken stream is resumed."""
    after, broken = sent.sequence, 0
    while True:
        request = gateway_service_pb2.StreamMessagesRequest(
            session_id=sent.session_id, after_sequence=after
        )
        try:
            for event in gateway.messages.StreamMessages(request, wait_for_ready=True):
                after, broken = max(after, event.through_sequence), 0
                yield event
                if event.run.run_id == sent.run_id and event.run.state in FINAL_STATES:
                    return
        except grpc.RpcError as error:
            broken += 1
            unavailable = failed_call(error).code() is grpc.StatusCode.UNAVAILABLE
            if not unavailable or broken > _MOST_RECONNECTS:
                raise
            time.sleep(_RECONNECT_SECONDS)
