"""What clients see of a session: messages, runs and heartbeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from services.common.text import Json
from services.gateway.domain.models import RunId, SessionId


class MessageRole(Enum):
    """Who a message is from."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


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
class ToolCall:
    """A model's request to execute a tool, its arguments exactly as the model wrote them."""

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage of a document; lines are counted from 1."""

    label: str
    knowledge_base_id: str
    document_id: str
    chunk_id: str
    document_name: str
    heading_path: tuple[str, ...]
    start_line: int
    end_line: int
    score: float


@dataclass(frozen=True, slots=True)
class Message:
    """A completed message, with the fields of the contract; `role` is None if it is unknown."""

    id: str
    session_id: SessionId
    run_id: RunId
    sequence: int
    role: MessageRole | None
    text: str
    create_time: datetime
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    citations: Sequence[Citation] = ()
    metadata: Mapping[str, Json] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign that the stream is alive."""

    time: datetime


Event: TypeAlias = Message | RunUpdate | Heartbeat
"""Something that happens in a session."""


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
