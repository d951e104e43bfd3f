"""What becomes of a run that a worker holds, and what is written then."""

from enum import Enum, auto
from typing import assert_never

from services.agent.domain.chat import Ending
from services.agent.domain.endings import (
    AGENT_DELETED,
    CANCELLED,
    CRASH_LOOP,
    INTERNAL,
    INTERRUPTED,
)
from services.agent.domain.queue import Claim, Standing
from services.agent.domain.run_models import StopReason


class Outcome(Enum):
    """What becomes of a run that is held."""

    DONE = auto()
    LOST = auto()
    HAND_BACK = auto()
    CANCEL = auto()
    INTERRUPT = auto()
    AGENT_GONE = auto()
    CRASH_LOOP = auto()
    FAIL = auto()

    @property
    def ending(self) -> Ending | None:
        """How it ends the run; None where the run ended by itself, or does not end here."""
        match self:
            case Outcome.CANCEL:
                return CANCELLED
            case Outcome.INTERRUPT:
                return INTERRUPTED
            case Outcome.AGENT_GONE:
                return AGENT_DELETED
            case Outcome.CRASH_LOOP:
                return CRASH_LOOP
            case Outcome.FAIL:
                return INTERNAL
            case Outcome.DONE | Outcome.LOST | Outcome.HAND_BACK:
                return None


def of_claim(claim: Claim, *, crash_limit: int) -> Outcome | None:
    """What becomes of a run that was just taken; None where it is to be worked on."""
    if claim.run.cancel_reason is not None:
        return _stop(claim.run.cancel_reason)
    return Outcome.CRASH_LOOP if claim.crashes >= crash_limit else None


def of_standing(standing: Standing | None) -> Outcome | None:
    """What becomes of a run that stands so, None being lost; None where it goes on."""
    if standing is None:
        return Outcome.LOST
    if standing.cancel_reason is not None:
        return _stop(standing.cancel_reason)
    return Outcome.AGENT_GONE if standing.agent_gone else None


def of_callee(outcome: Outcome | None) -> Outcome:
    """What becomes of the run of a sub-agent that is stopped as the one that asked for it is.

    Args:
        outcome: what becomes of that one; None where only the call was given up, or nothing is
            decided yet: whoever goes on with it may go on with this one.
    """
    match outcome:
        case None | Outcome.HAND_BACK | Outcome.LOST:
            return Outcome.HAND_BACK
        case Outcome.INTERRUPT:
            return Outcome.INTERRUPT
        case Outcome.CANCEL | Outcome.DONE | Outcome.AGENT_GONE | Outcome.CRASH_LOOP | Outcome.FAIL:
            return Outcome.CANCEL
        case _:
            assert_never(outcome)


def _stop(reason: StopReason) -> Outcome:
    return Outcome.INTERRUPT if reason is StopReason.INTERRUPTED else Outcome.CANCEL
