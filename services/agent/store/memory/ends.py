"""How runs in memory end, and how they are asked to."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from services.agent.domain.approval_models import ApprovalState
from services.agent.domain.chat import Ending
from services.agent.domain.endings import (
    CALLER_ENDED,
    CANCELLED,
    INTERRUPTED,
    cut_off_word,
    last_messages,
    notice,
    with_caller,
)
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, cut_off
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.run_models import StopReason, Usage
from services.agent.store.memory.database import MemoryDatabase, StoredRun

OPEN = (ToolCallState.PLANNED, ToolCallState.STARTED)
"""Where a call has no result yet."""


def stop_run(
    database: MemoryDatabase, stored: StoredRun, reason: StopReason, *, discard: bool = False
) -> None:
    """End a run that no worker holds, and ask the worker of another to do so."""
    stored.run = replace(stored.run, discarded=stored.run.discarded or discard)
    if not stored.run.state.in_hand:
        cancel_approvals(database, stored)
        why = stored.run.cancel_reason or reason
        end_run(database, stored, INTERRUPTED if why is StopReason.INTERRUPTED else CANCELLED)
    else:
        stored.run = replace(stored.run, cancel_reason=stored.run.cancel_reason or reason)


def cancel_approvals(database: MemoryDatabase, stored: StoredRun) -> None:
    """Let nobody answer any more what a run that is stopped had to be asked."""
    for approval in database.approvals(stored):
        if approval.state is ApprovalState.PENDING:
            stored.approvals[approval.id] = replace(
                approval, state=ApprovalState.CANCELLED, resolve_time=database.clock()
            )


def end_run(
    database: MemoryDatabase,
    stored: StoredRun,
    ending: Ending,
    closing: Sequence[Draft] = (),
    *,
    usage: Usage | None = None,
    steps: int = 0,
) -> list[Message]:
    """End a run with its last messages; the next one of the session lines up."""
    session_id = stored.run.session_id
    messages = database.append(stored.run, last_messages(_open_calls(stored), ending, closing))
    moment = messages[0].create_time if messages else database.clock()
    _close_calls(stored, ending, moment)
    stored.lease_until = stored.place = None
    stored.run = replace(
        stored.run,
        state=ending.state,
        stop_reason=ending.stop_reason,
        error=ending.error,
        step_count=stored.run.step_count + steps,
        usage=stored.run.usage + (usage or Usage()),
        cancel_reason=None,
        end_time=moment,
    )
    database.line_up(session_id)
    _end_subs(database, stored, ending)
    if stored.run.discarded:
        _discard(database, stored)
    return messages


def _discard(database: MemoryDatabase, stored: StoredRun) -> None:
    """Discard what was said in a run and in those of its sub-agents."""
    stored.run = replace(stored.run, discarded=True)
    database.discard(stored.run.session_id, lambda message: message.run_id == stored.run.id)
    for sub in database.subs(stored.run.id):
        _discard(database, sub)


def _end_subs(database: MemoryDatabase, stored: StoredRun, ending: Ending) -> None:
    """End the runs of sub-agents that are not done, whoever holds them."""
    for sub in [sub for sub in database.subs(stored.run.id) if not sub.run.state.final]:
        asked = sub.run.cancel_reason is StopReason.CANCELLED
        end_run(database, sub, CANCELLED if asked else with_caller(ending), [notice(CALLER_ENDED)])
    database.count_subs(stored)


def _open_calls(stored: StoredRun) -> list[ToolCall]:
    calls = (call for call in stored.calls if call.state in OPEN)
    return [ToolCall(call.tool_call_id, call.tool_name, "") for call in calls]


def _close_calls(stored: StoredRun, ending: Ending, moment: datetime) -> None:
    error = cut_off_word(ending)
    for call in [call for call in stored.calls if call.state in OPEN]:
        closed = replace(call, state=cut_off(call.state), error=error, end_time=moment)
        record(stored, closed)


def record(stored: StoredRun, changed: ToolCallRecord) -> None:
    """Put a tool call in its place in the record."""
    for place, call in enumerate(stored.calls):
        if (call.step, call.place) == (changed.step, changed.place):
            stored.calls[place] = changed
