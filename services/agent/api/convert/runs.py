"""Runs, between the wire and the domain."""

from typing import Final

from chatmind.agent.v1 import run_pb2, run_service_pb2

from services.agent.domain.drafts import MAX_TEXT_BYTES
from services.agent.domain.ledger import ToolCallRecord, ToolCallState
from services.agent.domain.run_models import Run, RunState, StopReason, Usage, WhenBusy
from services.common.convert import from_time, to_text

_STATES: Final = {
    RunState.IDLE: run_pb2.Run.STATE_IDLE,
    RunState.PLANNING: run_pb2.Run.STATE_PLANNING,
    RunState.THINKING: run_pb2.Run.STATE_THINKING,
    RunState.EXECUTING: run_pb2.Run.STATE_EXECUTING,
    RunState.AWAITING_APPROVAL: run_pb2.Run.STATE_AWAITING_APPROVAL,
    RunState.FINISHED: run_pb2.Run.STATE_FINISHED,
    RunState.ERROR: run_pb2.Run.STATE_ERROR,
    RunState.CANCELLED: run_pb2.Run.STATE_CANCELLED,
}
_STOP_REASONS: Final = {
    StopReason.END_TURN: run_pb2.Run.STOP_REASON_END_TURN,
    StopReason.MAX_STEPS: run_pb2.Run.STOP_REASON_MAX_STEPS,
    StopReason.MAX_TOKENS: run_pb2.Run.STOP_REASON_MAX_TOKENS,
    StopReason.MAX_TOOL_CALLS: run_pb2.Run.STOP_REASON_MAX_TOOL_CALLS,
    StopReason.MAX_DURATION: run_pb2.Run.STOP_REASON_MAX_DURATION,
    StopReason.MAX_OUTPUT: run_pb2.Run.STOP_REASON_MAX_OUTPUT,
    StopReason.REPEATED_CALL: run_pb2.Run.STOP_REASON_REPEATED_CALL,
    StopReason.CANCELLED: run_pb2.Run.STOP_REASON_CANCELLED,
    StopReason.MODEL_ERROR: run_pb2.Run.STOP_REASON_MODEL_ERROR,
    StopReason.CRASH_LOOP: run_pb2.Run.STOP_REASON_CRASH_LOOP,
    StopReason.INTERNAL: run_pb2.Run.STOP_REASON_INTERNAL,
    StopReason.AGENT_DELETED: run_pb2.Run.STOP_REASON_AGENT_DELETED,
    StopReason.INTERRUPTED: run_pb2.Run.STOP_REASON_INTERRUPTED,
    StopReason.HOOK: run_pb2.Run.STOP_REASON_HOOK,
}
_WHEN_BUSY: Final = {
    run_pb2.WHEN_BUSY_UNSPECIFIED: WhenBusy.ENQUEUE,
    run_pb2.WHEN_BUSY_ENQUEUE: WhenBusy.ENQUEUE,
    run_pb2.WHEN_BUSY_REJECT: WhenBusy.REJECT,
    run_pb2.WHEN_BUSY_INTERRUPT: WhenBusy.INTERRUPT,
    run_pb2.WHEN_BUSY_ROLLBACK: WhenBusy.ROLLBACK,
}
_TOOL_CALL_STATES: Final = {
    ToolCallState.PLANNED: run_pb2.ToolCallRecord.STATE_PLANNED,
    ToolCallState.STARTED: run_pb2.ToolCallRecord.STATE_STARTED,
    ToolCallState.DONE: run_pb2.ToolCallRecord.STATE_DONE,
    ToolCallState.FAILED: run_pb2.ToolCallRecord.STATE_FAILED,
    ToolCallState.UNKNOWN: run_pb2.ToolCallRecord.STATE_UNKNOWN,
}


def to_question(request: run_service_pb2.StartRunRequest) -> str:
    """What the user says.

    Raises:
        InvalidArgumentError: it cannot be kept.
    """
    return to_text(request.text, field="text", max_bytes=MAX_TEXT_BYTES)


def spelled_out(request: run_service_pb2.StartRunRequest) -> run_service_pb2.StartRunRequest:
    """The same request with its default written out, as a repeat may say it or not."""
    same = run_service_pb2.StartRunRequest()
    same.CopyFrom(request)
    same.when_busy = request.when_busy or run_pb2.WHEN_BUSY_ENQUEUE
    return same


def to_when_busy(request: run_service_pb2.StartRunRequest) -> WhenBusy:
    """What is to happen while another run goes on."""
    return _WHEN_BUSY[request.when_busy]


def from_run(value: Run) -> run_pb2.Run:
    """A run for the wire."""
    told = run_pb2.Run(
        id=value.id,
        session_id=value.session_id,
        agent_id=value.agent_id,
        message_id=value.message_id,
        state=_STATES[value.state],
        stop_reason=from_stop_reason(value.stop_reason),
        step_count=value.step_count,
        usage=_from_usage(value.usage),
        cancel_requested=value.cancel_requested,
        discarded=value.discarded,
        attempt=value.attempt,
        create_time=from_time(value.create_time),
    )
    if value.parent is not None:
        told.parent_run_id, told.parent_call_key = value.parent.run_id, value.parent.call_key
    if value.sub_usage != Usage():
        told.sub_usage.CopyFrom(_from_usage(value.sub_usage))
    if value.offered is not None:
        told.offered.tools.extend(value.offered.tools)
        told.offered.knowledge_base_ids.extend(value.offered.knowledge_base_ids)
        told.offered.model = value.offered.model
        told.offered.hooks.extend(value.offered.hooks)
    if value.error is not None:
        told.error.reason, told.error.message = value.error.reason, value.error.message
    if value.start_time is not None:
        told.start_time.FromDatetime(value.start_time)
    if value.end_time is not None:
        told.end_time.FromDatetime(value.end_time)
    return told


def _from_usage(value: Usage) -> run_pb2.Usage:
    told = run_pb2.Usage(
        input_tokens=value.input_tokens,
        output_tokens=value.output_tokens,
        cached_input_tokens=value.cached_input_tokens,
        reasoning_tokens=value.reasoning_tokens,
    )
    if value.cost is not None:
        told.cost.currency, told.cost.nanos = value.cost.currency, value.cost.nanos
    return told


def from_stop_reason(value: StopReason | None) -> run_pb2.Run.StopReason.ValueType:
    """Why a run ended, for the wire."""
    return run_pb2.Run.STOP_REASON_UNSPECIFIED if value is None else _STOP_REASONS[value]


def from_tool_call(value: ToolCallRecord) -> run_pb2.ToolCallRecord:
    """What became of a tool call, for the wire."""
    told = run_pb2.ToolCallRecord(
        run_id=value.run_id,
        step=value.step,
        tool_call_id=value.tool_call_id,
        tool_name=value.tool_name,
        state=_TOOL_CALL_STATES[value.state],
        idempotency_key=value.idempotency_key,
        attempts=value.attempts,
        error=value.error or "",
        plan_time=from_time(value.plan_time),
    )
    if value.start_time is not None:
        told.start_time.FromDatetime(value.start_time)
    if value.end_time is not None:
        told.end_time.FromDatetime(value.end_time)
    return told
