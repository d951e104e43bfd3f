"""How runs end: no call stays without its one result, no failure without a word to a person."""

from collections.abc import Iterable, Sequence
from typing import Final

from services.agent.domain.chat import Ending
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.run_models import RunError, RunState, StopReason

CANCELLED: Final = Ending(RunState.CANCELLED, StopReason.CANCELLED)
CANCELLED_NOTICE: Final = "Stopped at the user's request."

AGENT_DELETED: Final = Ending(
    RunState.ERROR,
    StopReason.AGENT_DELETED,
    RunError("AGENT_DELETED", "The agent of this conversation was deleted."),
)
CRASH_LOOP: Final = Ending(
    RunState.ERROR,
    StopReason.CRASH_LOOP,
    RunError(
        "INTERNAL",
        "This message could not be answered: the work on it failed again and again. "
        "It was given up so that the conversation can go on.",
    ),
)
INTERNAL: Final = Ending(
    RunState.ERROR,
    StopReason.INTERNAL,
    RunError("INTERNAL", "An internal error kept this message from being answered."),
)


def notice(text: str) -> Draft:
    """A word of ChatMind's own to whoever reads the conversation."""
    return Draft(Role.SYSTEM, text)


def unanswered(turn: Iterable[Draft]) -> tuple[ToolCall, ...]:
    """The calls of a run's messages that have no result, in the order in which they were asked.

    Args:
        turn: messages of one run, in order; may begin at the last ASSISTANT message with calls,
            as a model is only asked again once all calls before are answered.
    """
    open_calls: dict[str, ToolCall] = {}
    for message in turn:
        if message.role is Role.ASSISTANT:
            open_calls |= {call.id: call for call in message.tool_calls}
        elif message.role is Role.TOOL and message.tool_call_id is not None:
            open_calls.pop(message.tool_call_id, None)
    return tuple(open_calls.values())


def last_messages(turn: Iterable[Draft], ending: Ending, closing: Sequence[Draft]) -> list[Draft]:
    """All that is committed at the end of a run: results that are missing, then what closes it.

    Args:
        turn: as in `unanswered`.
        ending: how the run ends.
        closing: what its worker, or whoever stopped it, has to say.
    """
    missing = [_never_answered(call, ending) for call in unanswered(turn)]
    told = any(draft.role is Role.SYSTEM for draft in closing)
    if ending.state is RunState.ERROR and ending.error is not None and not told:
        return [*missing, *closing, notice(ending.error.message)]
    return [*missing, *closing]


def _never_answered(call: ToolCall, ending: Ending) -> Draft:
    cancelled = ending.state is RunState.CANCELLED
    text = "cancelled by the user" if cancelled else "interrupted: the run ended before a result"
    return Draft(
        Role.TOOL,
        text,
        tool_call_id=call.id,
        tool_name=call.name,
        metadata={"error": "cancelled" if cancelled else "interrupted"},
    )
