"""The record of tool calls: what was planned, what was begun, and what came of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from services.agent.domain.messages import Draft
from services.agent.domain.models import RunId, ToolCallId

UNKNOWN_OUTCOME: Final = "unknown_outcome"
"""The error of the result of a call that was begun, cut off, and must not be repeated."""

_MOST_OF_A_WORD = 64


class ToolCallState(Enum):
    """Where a tool call stands; the last three are final."""

    PLANNED = "planned"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """What became of one tool call.

    Attributes:
        run_id: the run that makes it.
        step: the run's step count when the model asked for it.
        place: its place in the message that asks for it, from 0.
        tool_call_id: its id in that message.
        tool_name: the tool.
        state: where it stands.
        plan_time: when that message was committed.
        attempts: how often it was begun.
        error: where it did not succeed, why, in a word for programs.
        start_time: when it was last begun.
        end_time: when its result was committed.
    """

    run_id: RunId
    step: int
    place: int
    tool_call_id: ToolCallId
    tool_name: str
    state: ToolCallState
    plan_time: datetime
    attempts: int = 0
    error: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at the call."""
        return idempotency_key(self.run_id, self.step, self.tool_call_id)

    @property
    def position(self) -> str:
        """Its sort key among the calls of the run; `read_position` reads it."""
        return position_of(self.step, self.place)


def position_of(step: int, place: int) -> str:
    """What stands for a call among those of its run; `read_position` reads it."""
    return f"{step}.{place}"


def read_position(position: str) -> tuple[int, int]:
    """Step and place of a `ToolCallRecord.position`."""
    step, _, place = position.partition(".")
    return int(step), int(place)


def idempotency_key(run_id: RunId, step: int, call_id: ToolCallId) -> str:
    """What tells a tool that can deduplicate that it is asked for the very same call again."""
    return f"{run_id}:{step}:{call_id}"


def call_of(key: str) -> ToolCallId:
    """The call that an `idempotency_key` is of."""
    return ToolCallId(key.split(":", 2)[2])


def outcome_of(result: Draft) -> tuple[ToolCallState, str | None]:
    """What a TOOL message makes of its call, with the word for what went wrong, if anything did."""
    error = result.metadata.get("error")
    if not isinstance(error, str):
        return ToolCallState.DONE, None
    unknown = error == UNKNOWN_OUTCOME
    return ToolCallState.UNKNOWN if unknown else ToolCallState.FAILED, error[:_MOST_OF_A_WORD]


def cut_off(state: ToolCallState) -> ToolCallState:
    """What becomes of an open call whose run ends: begun, it may have had its effect."""
    return ToolCallState.UNKNOWN if state is ToolCallState.STARTED else ToolCallState.FAILED
