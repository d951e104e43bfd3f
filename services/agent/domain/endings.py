"""How runs end: no call stays without its one result, no failure without a word to a person."""

from collections.abc import Iterable, Sequence
from typing import Final

from services.agent.domain.chat import Ending
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.run_models import RunError, RunState, StopReason

CANCELLED: Final = Ending(RunState.CANCELLED, StopReason.CANCELLED)
INTERRUPTED: Final = Ending(RunState.CANCELLED, StopReason.INTERRUPTED)

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

_CANCELLED: Final = "cancelled"
_INTERRUPTED: Final = "interrupted"
CUT_OFF_WORDS: Final = frozenset({_CANCELLED, _INTERRUPTED})
"""The errors, in words for programs, of calls that the end of their run cuts off."""

CALLER_ENDED: Final = "Stopped, because the run that asked for this one has ended."
"""What is said in the session of a sub-agent that was not done by then."""

_WHY_STOPPED: Final = {
    StopReason.CANCELLED: "Stopped at the user's request.",
    StopReason.INTERRUPTED: "Stopped, because the user sent another message.",
}


def notice(text: str) -> Draft:
    """A word of ChatMind's own to whoever reads the conversation."""
    return Draft(Role.SYSTEM, text)


def with_caller(ending: Ending) -> Ending:
    """How the run of a sub-agent ends that is not done when the run that asked for it ends so."""
    return INTERRUPTED if ending.stop_reason is StopReason.INTERRUPTED else CANCELLED


def last_messages(
    open_calls: Iterable[ToolCall], ending: Ending, closing: Sequence[Draft] = ()
) -> list[Draft]:
    """All that is committed at the end of a run: results that are missing, then what closes it.

    Args:
        open_calls: calls that have no result, in the order in which they were asked for.
        ending: how the run ends.
        closing: what its worker has to say; a word why there is no answer is added to it.
    """
    missing = [_never_answered(call, ending) for call in open_calls]
    why = ending.error.message if ending.error else _WHY_STOPPED.get(ending.stop_reason)
    told = any(draft.role is Role.SYSTEM for draft in closing)
    return [*missing, *closing, *([] if told or why is None else [notice(why)])]


def cut_off_word(ending: Ending) -> str:
    """The error, in a word for programs, of a call that this end cuts off."""
    return _CANCELLED if ending.state is RunState.CANCELLED else _INTERRUPTED


def _never_answered(call: ToolCall, ending: Ending) -> Draft:
    cancelled = ending.state is RunState.CANCELLED
    return Draft(
        Role.TOOL,
        "cancelled by the user" if cancelled else "interrupted: the run ended before a result",
        tool_call_id=call.id,
        tool_name=call.name,
        metadata={"error": cut_off_word(ending)},
    )
