"""What a person reads where a run ended without a whole answer. Pure."""

from typing import assert_never

from services.agent.domain.models import RunLimits
from services.agent.domain.run_models import StopReason


def limit_notice(reason: StopReason, limits: RunLimits) -> str:
    """The words that stand where the answer would.

    Args:
        reason: the limit that was reached, or why there is no answer.
        limits: what bounded the run.
    """
    match reason:
        case StopReason.MAX_STEPS:
            return f"I reached the limit of {_times(limits.steps, 'step')} before I was done."
        case StopReason.MAX_TOOL_CALLS:
            count = _times(limits.tool_calls, "tool call")
            return f"I reached the limit of {count} before I was done."
        case StopReason.MAX_TOKENS if limits.max_tokens is not None:
            count = _times(limits.max_tokens, "token")
            return f"I reached the limit of {count} before I was done."
        case StopReason.MAX_TOKENS:
            return "The model's reply was cut off by its own length limit before it said anything."
        case StopReason.MAX_DURATION:
            count = _times(round(limits.duration.total_seconds()), "second")
            return f"I reached the time limit of {count} before I was done."
        case StopReason.MAX_OUTPUT:
            return "I reached the limit of what one run may store before I was done."
        case StopReason.REPEATED_CALL:
            return "I kept making the same tool call and got no further, so I was stopped."
        case (
            StopReason.END_TURN
            | StopReason.CANCELLED
            | StopReason.MODEL_ERROR
            | StopReason.CRASH_LOOP
            | StopReason.INTERNAL
            | StopReason.AGENT_DELETED
            | StopReason.INTERRUPTED
            | StopReason.HOOK
        ):
            return "This message could not be answered."
        case _:
            assert_never(reason)


def at_once_notice(most: int) -> str:
    """The words that stand where the answer would after too many tool calls in one reply.

    Args:
        most: how many of one reply are executed.
    """
    return f"I asked for more than {_times(most, 'tool call')} at once, so I was stopped."


def _times(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
