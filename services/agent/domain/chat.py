"""What passes between the turn loop, models, tools and knowledge; the same for every provider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from services.agent.domain.approval_models import Approval
from services.agent.domain.messages import Citation, Message, Role, ToolCall, Whole
from services.agent.domain.models import (
    Agent,
    KnowledgeBaseId,
    ModelOptions,
    RunId,
    RunLimits,
    SessionId,
    ToolCallId,
)
from services.agent.domain.prices import Prices
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage
from services.agent.domain.sub_runs import AskAgent
from services.agent.domain.zones import DEFAULT_ZONE
from services.common.identity import Identity
from services.common.text import Json


class Provider(Enum):
    """A kind of model server."""

    OPENAI = "openai"
    OFFLINE = "offline"


class ToolProtocol(Enum):
    """How a model asks for tools: in the API's own field, or as tags or JSON in its text."""

    NATIVE = "native"
    TAGS = "tags"


class EndpointState(Enum):
    """Whether a server of a model is asked."""

    HEALTHY = "healthy"
    RESTING = "resting"
    PROBING = "probing"


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """What is told of a server of a model: neither its address nor any secret.

    Attributes:
        place: in the configuration, from 1.
        priority: one with a higher number is asked only where none with a lower one may be.
        weight: its share of the calls among those of its priority.
        max_concurrent: calls at once; 0 where they are not limited.
        state: whether it is asked.
        calls: under way.
    """

    place: int
    priority: int
    weight: int
    max_concurrent: int
    state: EndpointState
    calls: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is told of a model.

    Attributes:
        name: selects it in an agent.
        model: what its provider calls it.
        provider: what answers.
        context_tokens: how much it reads at once; 0 where that is not known.
        tool_protocol: how it asks for tools.
        default: an empty name stands for it.
        tools_tokens: about what offering it any tools costs, beside the tools themselves.
        prices: what its tokens cost; None where that is not known.
        endpoints: its servers as they are now, where a registry lists it; empty for a built-in one.
    """

    name: str
    model: str
    provider: Provider
    context_tokens: int = 0
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE
    default: bool = False
    tools_tokens: int = 0
    prices: Prices | None = None
    endpoints: tuple[EndpointInfo, ...] = ()


class ToolEffect(Enum):
    """What a call of a tool does to the world; the contract says more of each."""

    READ_ONLY = "read_only"
    STATE_CHANGING = "state_changing"
    OUTBOUND = "outbound"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool.

    Attributes:
        name: letters, digits, "_" and "-", at most 64.
        description: when to use it, what goes in and what comes out.
        input_schema: the JSON Schema of its arguments, an object.
        idempotent: a repeated call does no harm, so it may be repeated after a crash.
        effect: what a call does to the world; a tool that does not say is taken to change it.
        trusted: its results hold nothing that others wrote, so that they taint no run.
        asks_agent: it asks another agent, which may take all the time that its run has left.
        foreign: what is told of it was written by others, so that offering it taints a run.
    """

    name: str
    description: str
    input_schema: Mapping[str, Json]
    idempotent: bool
    effect: ToolEffect = ToolEffect.STATE_CHANGING
    trusted: bool = False
    asks_agent: bool = False
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a model reads it.

    Attributes:
        role: SYSTEM for instructions, else who speaks.
        text: what is said.
        tool_calls: what an ASSISTANT asked to be executed.
        tool_call_id: the call a TOOL message answers.
        tool_name: the tool a TOOL message comes from.
        citations: the passages within a TOOL message, labelled.
        reasoning: an ASSISTANT's own thoughts, sent back only to providers that want them.
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: ToolCallId | None = None
    tool_name: str | None = None
    citations: tuple[Citation, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model.

    Attributes:
        messages: instructions first, then the history; every tool call is answered.
        tools: what it may ask for; none on the last permitted step, where it has to answer.
        options: shape the answer.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions)


class FinishReason(Enum):
    """Why a model stopped writing."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered, complete.

    Attributes:
        text: what it says to the user; may be empty.
        tool_calls: what it asks to be executed.
        finish_reason: why it stopped.
        usage: what it processed; None where the server does not say.
        reasoning: its thoughts; kept in the message's metadata, no part of the answer.
        model: what the server calls the model that answered.
        hook: the hook that wrote this in the model's place; empty where the model did.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage | None = None
    reasoning: str = ""
    model: str = ""
    hook: str = ""


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A knowledge base that the user sees.

    Attributes:
        id: the base.
        display_name: what people call it.
        description: what is in it.
    """

    id: KnowledgeBaseId
    display_name: str
    description: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document that a search found.

    Attributes:
        text: the passage.
        citation: where it stands; its label is empty until the passage is shown to a model.
    """

    text: str
    citation: Citation


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the call; nothing of it comes from the model.

    Attributes:
        identity: on whose behalf it acts.
        agent: whose tool it is; holds the bases and how to search them.
        session_id: where it is called.
        run_id: the run that calls it.
        call_key: the same for every attempt at this very call, for tools that can deduplicate.
        next_label: the number of the first citation label that is free in this run, from 1.
        time_zone: where the user is, by an IANA name.
        ask: asks other agents; None where nobody can be asked.
        left: what of the run's limits is left for the call, if it asks one.
    """

    identity: Identity
    agent: Agent
    session_id: SessionId
    run_id: RunId
    call_key: str
    next_label: int
    time_zone: str = DEFAULT_ZONE
    ask: AskAgent | None = None
    left: RunLimits = field(default_factory=RunLimits)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back.

    Attributes:
        text: for the model to read.
        citations: the passages in it, labelled.
        error: why it failed, in a word for programs; None where it did not.
        source: where the text comes from, if from outside; it is then shown as a quotation.
        note: what ChatMind itself says of the text; shown behind it.
        whole: all of it, where the text is only its beginning; set by `execute` alone.
        usage: what models processed for it, where it asked an agent; counts as used by the run.
        tool_calls: how many tool calls were made for it then; they count likewise.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    error: str | None = None
    source: str = ""
    note: str = ""
    whole: Whole | None = None
    usage: Usage = field(default_factory=Usage)
    tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """All that a run begins, or goes on, with.

    Attributes:
        run: as it was claimed; its usage and step_count go on from there.
        agent: as it was when the run was first taken.
        identity: on whose behalf it works.
        history: messages of the turns before, oldest first, turns in the order in which they were
            accepted, without discarded ones; at most the window's number, so the oldest turn may
            lack its beginning.
        turn: messages of this run by sequence, without discarded ones; the first is the user's.
        started_calls: calls that an earlier worker began, STARTED and without result; each may or
            may not have had its effect.
        elapsed: how long ago the run was first taken, by the store's clock, without the time for
            which it waited for a person.
        approvals: what became of the questions to a person about the calls of its newest step.
        ask: asks other agents on behalf of the run; None where nobody can be asked.
        session_time_zone: what the session says of where its user is; may be empty.
    """

    run: Run
    agent: Agent
    identity: Identity
    history: Sequence[Message]
    turn: Sequence[Message]
    started_calls: frozenset[ToolCallId] = field(default_factory=frozenset)
    elapsed: timedelta = timedelta()
    approvals: Mapping[ToolCallId, Approval] = field(default_factory=dict)
    ask: AskAgent | None = None
    session_time_zone: str = ""

    @property
    def time_zone(self) -> str:
        """Where the user is, by an IANA name: as the session says, or else the agent."""
        return self.session_time_zone or self.agent.settings.time_zone or DEFAULT_ZONE


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends.

    Attributes:
        state: one of the final ones.
        stop_reason: why.
        error: with ERROR, what went wrong.
    """

    state: RunState
    stop_reason: StopReason
    error: RunError | None = None
