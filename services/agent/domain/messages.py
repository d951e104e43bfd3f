"""What is said in a conversation: messages before and after they are committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from services.agent.domain.models import (
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    SessionId,
    ToolCallId,
)
from services.common.text import Json


class Role(Enum):
    """Who speaks: a person, the model, a tool, or ChatMind itself about the run."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to execute a tool.

    Attributes:
        id: ties the call to its result.
        name: the tool; may be one that does not exist.
        arguments_json: exactly as the model wrote it; may be no JSON, or empty.
    """

    id: ToolCallId
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage of a document.

    Attributes:
        label: how the text refers to it, such as "1" for "[1]"; unique within the run.
        knowledge_base_id: the base.
        document_id: the document.
        chunk_id: the chunk; may be gone once the document is ingested anew.
        document_name: the document's display name.
        heading_path: texts of the headings above it, outermost first.
        start_line: its first line in the source, from 1.
        end_line: its last line.
        score: how well it matched.
    """

    label: str
    knowledge_base_id: KnowledgeBaseId
    document_id: DocumentId
    chunk_id: ChunkId
    document_name: str
    heading_path: tuple[str, ...]
    start_line: int
    end_line: int
    score: float


@dataclass(frozen=True, slots=True)
class Whole:
    """A tool's result that was too long to be shown at once.

    Attributes:
        text: from its beginning, as much as is kept.
        full_chars: how many characters it had.
        source: where it comes from, if from outside.
    """

    text: str
    full_chars: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message before it is committed; the store gives it id, sequence and time.

    Attributes:
        role: who speaks.
        text: what is said; empty where an assistant only calls tools.
        tool_calls: what an assistant asks to be executed.
        tool_call_id: the call that a TOOL message answers.
        tool_name: the tool that a TOOL message comes from.
        citations: passages that a TOOL message brought, or that an answer rests on.
        metadata: what else is known: model, finish_reason, usage, error of a tool, reasoning,
            full_chars of a result that was cut.
        whole: of a TOOL message that was cut, what is kept beside it; gone once it is committed.
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: ToolCallId | None = None
    tool_name: str | None = None
    citations: tuple[Citation, ...] = ()
    metadata: Mapping[str, Json] = field(default_factory=dict)
    whole: Whole | None = None


@dataclass(frozen=True, slots=True)
class Message(Draft):
    """A committed message; only ever discarded. The attributes of a draft, and:

    Attributes:
        id: a UUIDv7.
        session_id: the session it belongs to.
        run_id: the run it belongs to.
        sequence: 1, 2, 3 … per session without gaps, in the order of commits.
        step: the run's step count when it was committed.
        create_time: when it was committed.
        discarded: no model is shown it any more.
    """

    id: MessageId = field(kw_only=True)
    session_id: SessionId = field(kw_only=True)
    run_id: RunId = field(kw_only=True)
    sequence: int = field(kw_only=True)
    step: int = field(kw_only=True)
    create_time: datetime = field(kw_only=True)
    discarded: bool = field(default=False, kw_only=True)
