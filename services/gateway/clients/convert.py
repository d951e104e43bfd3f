"""Converts between the agent service's messages and the gateway's values."""

from collections.abc import Mapping
from typing import assert_never

from chatmind.agent.v1 import run_pb2, run_service_pb2, session_pb2

from services.common.convert import to_json, to_time
from services.gateway.domain.messages import (
    Accepted,
    Citation,
    Event,
    Heartbeat,
    Message,
    MessageRole,
    RunState,
    RunUpdate,
    ToolCall,
    WhenBusy,
)
from services.gateway.domain.models import RunId, SessionId

_MESSAGE_ROLES: Mapping[int, MessageRole] = {
    session_pb2.Message.ROLE_USER: MessageRole.USER,
    session_pb2.Message.ROLE_ASSISTANT: MessageRole.ASSISTANT,
    session_pb2.Message.ROLE_TOOL: MessageRole.TOOL,
    session_pb2.Message.ROLE_SYSTEM: MessageRole.SYSTEM,
}
_STATES: Mapping[int, RunState] = {
    run_pb2.Run.STATE_IDLE: RunState.IDLE,
    run_pb2.Run.STATE_PLANNING: RunState.PLANNING,
    run_pb2.Run.STATE_THINKING: RunState.THINKING,
    run_pb2.Run.STATE_EXECUTING: RunState.EXECUTING,
    run_pb2.Run.STATE_AWAITING_APPROVAL: RunState.AWAITING_APPROVAL,
    run_pb2.Run.STATE_FINISHED: RunState.FINISHED,
    run_pb2.Run.STATE_ERROR: RunState.ERROR,
    run_pb2.Run.STATE_CANCELLED: RunState.CANCELLED,
}
_STOP_REASONS: Mapping[int, str] = {
    number: name.removeprefix("STOP_REASON_")
    for name, number in run_pb2.Run.StopReason.items()
    if number
}


def when_busy(value: WhenBusy) -> run_pb2.WhenBusy.ValueType:
    """The value as the agent service has it."""
    match value:
        case WhenBusy.ENQUEUE:
            return run_pb2.WHEN_BUSY_ENQUEUE
        case WhenBusy.REJECT:
            return run_pb2.WHEN_BUSY_REJECT
        case WhenBusy.INTERRUPT:
            return run_pb2.WHEN_BUSY_INTERRUPT
        case WhenBusy.ROLLBACK:
            return run_pb2.WHEN_BUSY_ROLLBACK
        case _:
            assert_never(value)


def accepted(response: run_service_pb2.StartRunResponse) -> Accepted:
    """Where an accepted message is stored, and the run that answers it."""
    message = response.message
    return Accepted(
        SessionId(message.session_id), RunId(response.run.id), message.id, message.sequence
    )


def event(response: run_service_pb2.WatchSessionResponse) -> Event | None:
    """The event; None for a kind that this release does not know."""
    match response.WhichOneof("event"):
        case "message":
            return message(response.message)
        case "run":
            return run_update(response.run)
        case "heartbeat":
            return Heartbeat(to_time(response.heartbeat.time))
        case _:
            return None


def message(given: session_pb2.Message) -> Message:
    """A completed message."""
    return Message(
        id=given.id,
        session_id=SessionId(given.session_id),
        run_id=RunId(given.run_id),
        sequence=given.sequence,
        role=_MESSAGE_ROLES.get(given.role),
        text=given.text,
        create_time=to_time(given.create_time),
        tool_calls=[ToolCall(call.id, call.name, call.arguments_json) for call in given.tool_calls],
        tool_call_id=given.tool_call_id,
        tool_name=given.tool_name,
        citations=[_citation(each) for each in given.citations],
        metadata=to_json(given.metadata),
    )


def run_update(run: run_pb2.Run) -> RunUpdate:
    """The state of a run."""
    return RunUpdate(
        run_id=RunId(run.id),
        session_id=SessionId(run.session_id),
        state=_STATES.get(run.state),
        stop_reason=_STOP_REASONS.get(run.stop_reason, ""),
        step_count=run.step_count,
        error_reason=run.error.reason,
        error_message=run.error.message,
    )


def _citation(given: session_pb2.Citation) -> Citation:
    return Citation(
        label=given.label,
        knowledge_base_id=given.knowledge_base_id,
        document_id=given.document_id,
        chunk_id=given.chunk_id,
        document_name=given.document_name,
        heading_path=tuple(given.heading_path),
        start_line=given.start_line,
        end_line=given.end_line,
        score=given.score,
    )
