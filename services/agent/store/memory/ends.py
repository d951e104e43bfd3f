"""How runs in memory end, and how they are asked to."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CANCELLED, INTERRUPTED, cut_off_word, last_messages
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, cut_off
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.run_models import RunState, StopReason, Usage
from services.agent.store.memory.database import Held, MemoryDatabase

OPEN = (ToolCallState.PLANNED, ToolCallState.STARTED)
"""Where a call has no result yet."""


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
    messages = database.append(held.run, last_messages(_open_calls(held), ending, closing))
    moment = messages[0].create_time if messages else database.clock()
    _close_calls(held, ending, moment)
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
        end_time=moment,
    )
    database.line_up(session_id)
    return messages


def _open_calls(held: Held) -> list[ToolCall]:
    return [
        ToolCall(call.tool_call_id, call.tool_name, "") for call in held.calls if call.state in OPEN
    ]


def _close_calls(held: Held, ending: Ending, moment: datetime) -> None:
    error = cut_off_word(ending)
    for call in [call for call in held.calls if call.state in OPEN]:
        closed = replace(call, state=cut_off(call.state), error=error, end_time=moment)
        record(held, closed)


def record(held: Held, changed: ToolCallRecord) -> None:
    """Put a tool call in its place in the record."""
    for place, call in enumerate(held.calls):
        if (call.step, call.place) == (changed.step, changed.place):
            held.calls[place] = changed
