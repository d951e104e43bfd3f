"""A conversation with an agent: send a message, then follow the run until it ends."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from chatmind.agent.v1 import agent_service_pb2, run_pb2, run_service_pb2
from chatmind.gateway.v1 import gateway_service_pb2, message_pb2

from cli.client import CALL_SECONDS, Gateway, events
from cli.output import word
from cli.retries import Retries

FINAL_STATES = {
    message_pb2.RunUpdate.STATE_FINISHED,
    message_pb2.RunUpdate.STATE_ERROR,
    message_pb2.RunUpdate.STATE_CANCELLED,
}

Event = gateway_service_pb2.StreamMessagesResponse


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was accepted.

    Attributes:
        session_id: its session.
        run_id: the run that answers it.
        sequence: its number in the session; the answer has the next ones.
    """

    session_id: str
    run_id: str
    sequence: int


def send(
    gateway: Gateway,
    text: str,
    *,
    session_id: str = "",
    agent_id: str = "",
    when_busy: gateway_service_pb2.WhenBusy.ValueType = gateway_service_pb2.WHEN_BUSY_UNSPECIFIED,
    retries: Retries | None = None,
) -> Sent:
    """Send a message to a session, or to an agent in a new session.

    Its request id makes it safe to send it again after the connection broke.
    """
    retries = retries or Retries(attempts=3)
    request = gateway_service_pb2.SendMessageRequest(
        text=text, request_id=str(uuid.uuid4()), when_busy=when_busy
    )
    if session_id:
        request.session_id = session_id
    else:
        request.agent_id = agent_id
    while True:
        try:
            response = gateway.messages.SendMessage(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            retries.wait(error)
        else:
            return Sent(response.session_id, response.run_id, response.sequence)


def answer(gateway: Gateway, sent: Sent, *, retries: Retries | None = None) -> Iterator[Event]:
    """Every event after the message, up to the end of its run.

    A stream that breaks is resumed, and so is one whose gateway shuts down, which nobody notices.
    The last event is the run in its final state, even if the run ended before the stream began.
    """
    retries = retries or Retries()
    after, ended = sent.sequence, False
    while not ended:
        broken = None
        try:
            for event in _followed(gateway, sent, after):
                if event.HasField("go_away"):
                    break
                retries.reset()
                after = max(after, event.through_sequence)
                ended = _is_end(event, sent)
                yield event
        except grpc.RpcError as error:
            broken = error
        if not ended:
            retries.wait(broken)


def _followed(gateway: Gateway, sent: Sent, after: int) -> Iterator[Event]:
    """The events of one stream, which ends with the run.

    A stream reports changes only. If a run ended before it began, only its messages come, so the
    run itself is looked up at the beginning and with each heartbeat.
    """
    request = gateway_service_pb2.StreamMessagesRequest(
        session_id=sent.session_id, after_sequence=after
    )
    end = _end(gateway, sent)
    if end is not None and end.through_sequence <= after:
        yield end
        return
    for event in events(gateway.messages.StreamMessages(request)):
        yield event
        if _is_end(event, sent):
            return
        if end is None and event.HasField("heartbeat"):
            end = _end(gateway, sent)
        if end is not None and end.through_sequence <= event.through_sequence:
            yield end
            return


def _is_end(event: Event, sent: Sent) -> bool:
    return event.run.run_id == sent.run_id and event.run.state in FINAL_STATES


def _end(gateway: Gateway, sent: Sent) -> Event | None:
    """The final state of a run that has ended, with the last sequence of its session; else None."""
    request = run_service_pb2.GetRunRequest(run_id=sent.run_id)
    run = gateway.runs.GetRun(request, timeout=CALL_SECONDS).run
    # The states of both contracts have the same numbers.
    state = message_pb2.RunUpdate.State.ValueType(run.state)
    if state not in FINAL_STATES:
        return None
    # Looked up after the end is known, so that it covers all messages of the run.
    session = gateway.agents.GetSession(
        agent_service_pb2.GetSessionRequest(session_id=sent.session_id), timeout=CALL_SECONDS
    ).session
    stop_reason = word(run_pb2.Run.StopReason.Name, run.stop_reason, prefix="STOP_REASON_").upper()
    update = message_pb2.RunUpdate(
        run_id=run.id,
        session_id=run.session_id,
        state=state,
        stop_reason=stop_reason,
        step_count=run.step_count,
        error_reason=run.error.reason,
        error_message=run.error.message,
    )
    return Event(run=update, through_sequence=session.last_sequence)
