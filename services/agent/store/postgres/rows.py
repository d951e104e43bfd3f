"""Rows as domain values, at once and in one place."""

from typing import Final, TypeVar

from asyncpg import Record

from services.agent.domain.approval_models import Approval, ApprovalId, ApprovalState, Question
from services.agent.domain.ledger import ToolCallRecord, ToolCallState
from services.agent.domain.messages import Message, Role
from services.agent.domain.models import (
    Agent,
    AgentId,
    MessageId,
    RunId,
    Session,
    SessionId,
    ToolCallId,
)
from services.agent.domain.run_models import (
    Parent,
    Run,
    RunError,
    RunState,
    Spent,
    StopReason,
)
from services.agent.store.codec import (
    calls_from_json,
    citations_from_json,
    limits_from_json,
    offered_from_json,
    settings_from_json,
)
from services.agent.store.postgres.usage import SUB_USAGE, USAGE, usage_of

T = TypeVar("T")

# Workers of a later release may end runs for reasons that are not known here yet.
_STOP_REASONS: Final = {reason.value: reason for reason in StopReason}

FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
"""Below every id: where a list that goes up begins."""

LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Above every id: where a list that goes down begins."""


RUN: Final = f"""
run.id, run.session_id, run.tenant, run.user_id, run.agent_id, run.message_id, run.turn, run.state,
run.stop_reason, run.step_count, {USAGE}, run.offered,
run.error_reason, run.error_message, run.cancel_reason, run.discarded, run.attempt,
run.spent_steps, run.spent_calls, run.spent_tokens,
{SUB_USAGE}, run.sub_tool_calls,
run.parent_run_id, run.parent_call_key, run.callers, run.parent_limits,
run.create_time, run.start_time, run.end_time
"""
"""The columns of a run that is told of; it has others, among them all that its agent is told."""

TOOL_CALL: Final = """
tool_call.run_id, tool_call.step, tool_call.place, tool_call.call_id, tool_call.tool_name,
tool_call.state, tool_call.attempts, tool_call.error, tool_call.plan_time, tool_call.start_time,
tool_call.end_time
"""
"""The columns of a tool call that is told of; what is kept of its result is not among them."""


def present(result: T | None) -> T:
    """The row, or value, of a statement that always gives one."""
    if result is None:
        raise LookupError("the statement gave nothing")
    return result


def agent_of(row: Record) -> Agent:
    """A row of `agent`."""
    return Agent(
        id=AgentId(str(row["id"])),
        tenant=row["tenant"],
        owner_user_id=row["owner_user_id"],
        settings=settings_from_json({**row}),
        create_time=row["create_time"],
        update_time=row["update_time"],
    )


def session_of(row: Record) -> Session:
    """A row of `chat_session` with `active_run_id`."""
    active = row["active_run_id"]
    return Session(
        id=SessionId(str(row["id"])),
        tenant=row["tenant"],
        user_id=row["user_id"],
        agent_id=AgentId(str(row["agent_id"])),
        title=row["title"],
        last_sequence=row["last_sequence"],
        active_run_id=None if active is None else RunId(str(active)),
        create_time=row["create_time"],
        update_time=row["update_time"],
        parent_run_id=None if row["parent_run_id"] is None else RunId(str(row["parent_run_id"])),
        parent_call_key=row["parent_call_key"],
        time_zone=row["time_zone"],
    )


def message_of(row: Record) -> Message:
    """A row of `chat_message`."""
    call_id = row["tool_call_id"]
    return Message(
        role=Role(row["role"]),
        text=row["text"],
        tool_calls=calls_from_json(row["tool_calls"] or ()),
        tool_call_id=None if call_id is None else ToolCallId(call_id),
        tool_name=row["tool_name"],
        citations=citations_from_json(row["citations"] or ()),
        metadata=row["metadata"] or {},
        id=MessageId(str(row["id"])),
        session_id=SessionId(str(row["session_id"])),
        run_id=RunId(str(row["run_id"])),
        sequence=row["sequence"],
        step=row["step"],
        create_time=row["create_time"],
        discarded=row["discarded"],
    )


def run_of(row: Record) -> Run:
    """A row with the columns `RUN`."""
    cancel_reason, offered, error = row["cancel_reason"], row["offered"], row["error_reason"]
    sub_usage = usage_of(row, prefix="sub_")
    return Run(
        id=RunId(str(row["id"])),
        session_id=SessionId(str(row["session_id"])),
        tenant=row["tenant"],
        user_id=row["user_id"],
        agent_id=AgentId(str(row["agent_id"])),
        message_id=MessageId(str(row["message_id"])),
        turn=row["turn"],
        state=RunState(row["state"]),
        create_time=row["create_time"],
        stop_reason=_STOP_REASONS.get(row["stop_reason"]),
        step_count=row["step_count"],
        usage=usage_of(row) + sub_usage,
        sub_usage=sub_usage,
        sub_tool_calls=row["sub_tool_calls"],
        offered=None if offered is None else offered_from_json(offered),
        error=None if error is None else RunError(error, row["error_message"]),
        cancel_reason=None if cancel_reason is None else StopReason(cancel_reason),
        discarded=row["discarded"],
        attempt=row["attempt"],
        before=Spent(row["spent_steps"], row["spent_calls"], row["spent_tokens"]),
        start_time=row["start_time"],
        end_time=row["end_time"],
        parent=_parent_of(row),
    )


def _parent_of(row: Record) -> Parent | None:
    if row["parent_run_id"] is None:
        return None
    return Parent(
        run_id=RunId(str(row["parent_run_id"])),
        call_key=row["parent_call_key"],
        callers=tuple(AgentId(str(each)) for each in row["callers"]),
        limits=limits_from_json(row["parent_limits"]),
    )


APPROVAL: Final = """
approval.*, CASE
    WHEN approval.state = 'pending' AND approval.expire_time <= clock_timestamp() THEN 'expired'
    ELSE approval.state
END AS stands
"""
"""The columns of an approval; one without an answer expires when its time comes."""


def approval_of(row: Record) -> Approval:
    """A row with the columns `APPROVAL`."""
    state = ApprovalState(row["stands"])
    return Approval(
        id=ApprovalId(str(row["id"])),
        session_id=SessionId(str(row["session_id"])),
        run_id=RunId(str(row["run_id"])),
        turn=row["turn"],
        step=row["step"],
        place=row["place"],
        question=Question(ToolCallId(row["call_id"]), row["tool_name"], row["arguments"]),
        state=state,
        create_time=row["create_time"],
        expire_time=row["expire_time"],
        resolve_time=(
            row["expire_time"] if state is ApprovalState.EXPIRED else row["resolve_time"]
        ),
        resolver_user_id=row["resolver_user_id"] or "",
        comment=row["comment"] or "",
    )


def tool_call_of(row: Record) -> ToolCallRecord:
    """A row with the columns `TOOL_CALL`."""
    return ToolCallRecord(
        run_id=RunId(str(row["run_id"])),
        step=row["step"],
        place=row["place"],
        tool_call_id=ToolCallId(row["call_id"]),
        tool_name=row["tool_name"],
        state=ToolCallState(row["state"]),
        plan_time=row["plan_time"],
        attempts=row["attempts"],
        error=row["error"],
        start_time=row["start_time"],
        end_time=row["end_time"],
    )
