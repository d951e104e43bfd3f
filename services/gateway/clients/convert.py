"""Converts between the agent service's messages and the gateway's values."""

from collections.abc import Mapping
from typing import assert_never

from chatmind.agent.v1 import run_pb2, run_service_pb2

from services.gateway.domain.messages import (
    Accepted,
    Message,
    RunState,
    RunUpdate,
    Told,
    WhenBusy,
)
from services.gateway.domain.models import RunId, SessionId

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


def from_when_busy(value: WhenBusy) -> run_pb2.WhenBusy.ValueType:
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


def to_accepted(response: run_service_pb2.StartRunResponse) -> Accepted:
    """Where an accepted message is stored, and the run that answers it."""
    message = response.message
    return Accepted(
        SessionId(message.session_id), RunId(response.run.id), message.id, message.sequence
    )


def to_told(event: run_service_pb2.WatchedEvent) -> Told | None:
    """What a watch told; None for a mere sign of life, or a kind that this release does not know.

    A message is the same on the wire in both contracts.
    """
    match event.WhichOneof("event"):
        case "message":
            return Message(event.message.sequence, event.message.SerializeToString())
        case "run":
            return to_run_update(event.run)
        case _:
            return None


def to_run_update(run: run_pb2.Run) -> RunUpdate:
    """The state of a run."""
    return RunUpdate(
        run_id=RunId(run.id),
        session_id=SessionId(run.session_id),
        state=_STATES.get(run.state),
        stop_reason=_STOP_REASONS.get(run.stop_reason, ""),
        step_count=run.step_count,
        error_reason=run.error.reason,
        error_message=run.error.message,
        discarded=run.discarded,
    )
