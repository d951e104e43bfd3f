"""Approvals: the questions to a person whether a tool call may be made."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, NewType

from services.agent.domain.models import RunId, SessionId, ToolCallId

ApprovalId = NewType("ApprovalId", str)

MAX_ARGUMENTS_BYTES: Final = 64 * 1024
"""How long the arguments may be that a person is asked about; nobody reads more."""


class ApprovalState(Enum):
    """Where an approval stands; all but the first are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Decision(Enum):
    """A person's answer."""

    APPROVE = "approve"
    DENY = "deny"

    @property
    def state(self) -> ApprovalState:
        """Where it leaves the approval."""
        return ApprovalState.APPROVED if self is Decision.APPROVE else ApprovalState.DENIED


@dataclass(frozen=True, slots=True)
class Question:
    """A call that is to wait for a person.

    Attributes:
        tool_call_id: the call, by its id in the run.
        tool_name: the tool.
        arguments_json: all arguments as the tool will get them, in canonical JSON.
    """

    tool_call_id: ToolCallId
    tool_name: str
    arguments_json: str

    @property
    def digest(self) -> str:
        """What tells it from every other call: SHA-256 in hexadecimal."""
        return hashlib.sha256(f"{self.tool_name}\n{self.arguments_json}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Approval:
    """A question that was put to the user of a run.

    Attributes:
        id: a UUIDv7.
        session_id: the session of the run.
        run_id: the run that waits.
        turn: of that run.
        step: the run's step count when the model asked for the call.
        place: of the call in the message that asks for it, from 0.
        question: what is asked.
        state: where it stands.
        create_time: when the run began to wait.
        expire_time: until when it can be answered.
        resolve_time: when it was answered, lapsed or was cancelled.
        resolver_user_id: who answered; empty where nobody did.
        comment: what was said with the answer.
    """

    id: ApprovalId
    session_id: SessionId
    run_id: RunId
    turn: int
    step: int
    place: int
    question: Question
    state: ApprovalState
    create_time: datetime
    expire_time: datetime
    resolve_time: datetime | None = None
    resolver_user_id: str = ""
    comment: str = ""

    @property
    def position(self) -> str:
        """Its sort key among those of a session; `read_position` reads it."""
        return f"{self.turn}.{self.step}.{self.place}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a question.

    Attributes:
        decision: yes or no.
        digest: of the question that was decided on; empty where a denial names none.
        comment: what was said with it.
    """

    decision: Decision
    digest: str = ""
    comment: str = ""


def read_position(position: str) -> tuple[int, int, int]:
    """Turn, step and place of an `Approval.position`."""
    turn, step, place = position.split(".")
    return int(turn), int(step), int(place)
