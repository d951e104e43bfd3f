"""How runs in memory end, and how they are asked to."""

from collections.abc import Sequence
from dataclasses import replace

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CANCELLED, INTERRUPTED, cut_off_word, last_messages
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, cut_off
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.run_models import RunState, StopReason, Usage
from services.agent.store.memory.database import Held, MemoryDatabase

_OPEN = (ToolCallState.PLANNED, ToolCallState.STARTED)


def stop_run(
    database: MemoryDatabase, held: Held, reason: StopReason, *, discard: bool = False
) -> None:
    """End a run that no worker holds, and ask the worker of another to do so."""
    held.run = replace(held.run, discarded=held.run.discarded or discard)
    if held.run.state is RunState.IDLE:
        why = held.run.cancel_reason or reason
        end_run(database, held, INTERRUPTED if why is StopReason.INTERRUPTED else CANCELLED)
    else:
        held.run = replace(held.run, cancel_reason=held.run.cancel_reason or reason)


def end_run(
    database: MemoryDatabase,
    held: Held,
    ending: Ending,
    closing: Sequence[Draft] = (),
    *,
    usage: Usage | None = None,
    steps: int = 0,
) -> list[Message]:
    """End a run with its last messages; the next one of the session lines up."""
    session_id = held.run.session_id
    drafts = last_messages(_close_calls(database, held, ending), ending, closing)
    messages = database.append(held.run, drafts)
    if held.run.discarded:
        database.discard(session_id, lambda message: message.run_id == held.run.id)
    held.lease_until = held.place = None
    held.run = replace(
        held.run,
        state=ending.state,
        stop_reason=ending.stop_reason,
        error=ending.error,
        step_count=held.run.step_count + steps,
        usage=held.run.usage + (usage or Usage()),
        cancel_reason=None,
        end_time=database.clock(),
    )
    database.line_up(session_id)
    return messages


def _close_calls(database: MemoryDatabase, held: Held, ending: Ending) -> list[ToolCall]:
    """The calls without result, which are closed in the record."""
    calls = [call for call in held.calls if call.state in _OPEN]
    for call in calls:
        closed = replace(
            call,
            state=cut_off(call.state),
            error=cut_off_word(ending),
            end_time=database.clock(),
        )
        record(held, closed)
    return [ToolCall(call.tool_call_id, call.tool_name, "") for call in calls]


def record(held: Held, changed: ToolCallRecord) -> None:
    """Put a tool call in its place in the record."""
    for place, call in enumerate(held.calls):
        if (call.step, call.place) == (changed.step, changed.place):
            held.calls[place] = changed
