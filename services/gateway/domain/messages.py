"""What clients see of a session: messages, runs and signs of life."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from services.gateway.domain.models import RunId, SessionId


class RunState(Enum):
    """The state of a run."""

    IDLE = "idle"
    PLANNING = "planning"
    THINKING = "thinking"
    EXECUTING = "executing"
    AWAITING_APPROVAL = "awaiting_approval"
    FINISHED = "finished"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the run has ended."""
        return self in {RunState.FINISHED, RunState.ERROR, RunState.CANCELLED}


class WhenBusy(Enum):
    """What happens to a message while its session is busy with another run."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Message:
    """A completed message, which the gateway passes on as it is.

    Attributes:
        sequence: its place in the session.
        encoded: a `Message` of the contract, as on the wire.
    """

    sequence: int
    encoded: bytes


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """A change of a run; `state` is None if it is unknown.

    `stop_reason` and the error are empty until the run has ended.
    """

    run_id: RunId
    session_id: SessionId
    state: RunState | None
    stop_reason: str = ""
    step_count: int = 0
    error_reason: str = ""
    error_message: str = ""
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign that the stream is alive."""

    time: datetime


@dataclass(frozen=True, slots=True)
class GoAway:
    """The last event of a gateway that shuts down; the client resumes at another."""


Told: TypeAlias = Message | RunUpdate
"""Something that a watch of a session tells."""

Event: TypeAlias = Message | RunUpdate | Heartbeat | GoAway
"""Something that a client is sent."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to send; a retry has the same request id."""

    text: str
    request_id: str
    when_busy: WhenBusy


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where an accepted message is stored, and the run that answers it."""

    session_id: SessionId
    run_id: RunId
    message_id: str
    sequence: int
