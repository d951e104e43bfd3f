"""What the agent service keeps: agents and sessions; `run_models` and `messages` have the rest.

An unset setting is None and stays so when stored; properties say what it then means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NewType

from services.common.text import Json

AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
RunId = NewType("RunId", str)
KnowledgeBaseId = NewType("KnowledgeBaseId", str)
DocumentId = NewType("DocumentId", str)
ChunkId = NewType("ChunkId", str)
ToolCallId = NewType("ToolCallId", str)
"""A tool call's id, as the model gave it: unique within its assistant message only."""

DEFAULT_TOP_K: Final = 5
DEFAULT_MAX_STEPS: Final = 20
DEFAULT_MAX_TOOL_CALLS: Final = 100
DEFAULT_MAX_DURATION: Final = timedelta(minutes=10)
DEFAULT_MAX_MESSAGES: Final = 20
DEFAULT_COMPACT_AT: Final = 0.9
DEFAULT_KEEP_MESSAGES: Final = 20
DEFAULT_MAX_SUMMARY_TOKENS: Final = 1000


class Visibility(Enum):
    """Who can see and use an agent."""

    PRIVATE = "private"
    TENANT = "tenant"


class ApprovalMode(Enum):
    """Whether calls of a tool wait for a person, whatever the tool does and the model has read."""

    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """Whether calls of one tool wait for a person.

    Attributes:
        tool: its name.
        mode: whether they wait.
    """

    tool: str
    mode: ApprovalMode


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What shapes a model's answers; an unset one is left to the model.

    Attributes:
        temperature: from 0 to 2.
        top_p: above 0, up to 1.
        max_output_tokens: bounds one reply.
        stop: a reply ends where one of these appears; at most four.
        seed: asks for repeatable answers.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How an agent's bases are searched when its model calls query_knowledge.

    Attributes:
        top_k: passages of one search.
        min_score: passages that score lower are dropped.
    """

    top_k: int | None = None
    min_score: float | None = None

    @property
    def passages(self) -> int:
        """How many passages one search brings."""
        return DEFAULT_TOP_K if self.top_k is None else self.top_k


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of one run.

    Attributes:
        max_steps: how often the model is asked with tools; after that it must answer without.
        max_tool_calls: how many tool calls are executed.
        max_tokens: tokens in and out together; None is no limit.
        max_duration: wall time from the run's `start_time`.
    """

    max_steps: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_duration: timedelta | None = None

    def within(self, left: "RunLimits") -> "RunLimits":
        """These limits, and none above what is left elsewhere; an unset one there is no bound."""
        calls, tokens = [self.tool_calls], [] if self.max_tokens is None else [self.max_tokens]
        calls += [] if left.max_tool_calls is None else [left.max_tool_calls]
        tokens += [] if left.max_tokens is None else [left.max_tokens]
        return replace(
            self,
            max_tool_calls=min(calls),
            max_tokens=min(tokens, default=None),
            max_duration=min(self.duration, left.max_duration or self.duration),
        )

    @property
    def steps(self) -> int:
        """The step limit that holds."""
        return DEFAULT_MAX_STEPS if self.max_steps is None else self.max_steps

    @property
    def tool_calls(self) -> int:
        """The tool-call limit that holds."""
        return DEFAULT_MAX_TOOL_CALLS if self.max_tool_calls is None else self.max_tool_calls

    @property
    def duration(self) -> timedelta:
        """The time limit that holds."""
        return DEFAULT_MAX_DURATION if self.max_duration is None else self.max_duration


class WindowStrategy(Enum):
    """How the messages that a model is shown are chosen; the contract says more of each."""

    WINDOW = "window"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - no password
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Window:
    """What of a session's history the model sees.

    Attributes:
        max_messages: the running turn's and past ones, those in whole turns; may be 0.
        max_tokens: their estimated tokens; None leaves it to the model's context.
        strategy: how they are chosen.
        compact_at: share of the token bound, up to 1, from which on older ones are summarised.
        keep_messages: past ones that are not summarised, the newest.
        max_summary_tokens: bounds a summary.
    """

    max_messages: int | None = None
    max_tokens: int | None = None
    strategy: WindowStrategy = WindowStrategy.WINDOW
    compact_at: float | None = None
    keep_messages: int | None = None
    max_summary_tokens: int | None = None

    @property
    def messages(self) -> int | None:
        """The message limit that holds; None where tokens alone are limited."""
        if self.max_messages is None and self.strategy is WindowStrategy.WINDOW:
            return DEFAULT_MAX_MESSAGES
        return self.max_messages

    @property
    def messages_at_once(self) -> int:
        """How many past messages a run begins with; with other strategies they are read later."""
        return (self.messages or 0) if self.strategy is WindowStrategy.WINDOW else 0

    @property
    def compacting_at(self) -> float:
        """The share of the token bound that holds."""
        return DEFAULT_COMPACT_AT if self.compact_at is None else self.compact_at

    @property
    def kept_messages(self) -> int:
        """How many past messages are not summarised."""
        return DEFAULT_KEEP_MESSAGES if self.keep_messages is None else self.keep_messages

    @property
    def summary_tokens(self) -> int:
        """How long a summary may be."""
        given = self.max_summary_tokens
        return DEFAULT_MAX_SUMMARY_TOKENS if given is None else given


@dataclass(frozen=True, slots=True)
class HookSetting:
    """A hook that an agent has.

    Attributes:
        name: a registered one.
        priority: hooks with lower ones are outside; None leaves it to the hook.
        config: keeps the hook's schema.
    """

    name: str
    priority: int | None = None
    config: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class McpBinding:
    """An MCP server that an agent may use, with what was consented to.

    Attributes:
        server: the operator's name for it.
        approved: digests of the tools that may be offered, by the server's own names for them.
    """

    server: str
    approved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What its owner decides about an agent.

    Attributes:
        display_name: what people call it.
        description: what it is for.
        system_prompt: its standing instruction.
        model: a registered name; empty means the default.
        options: shape the model's answers.
        tools: names of the tools it may use.
        knowledge_base_ids: bases it may search, with the sight of whoever talks to it.
        retrieval: how they are searched.
        limits: bound each run.
        window: bounds the history.
        visibility: who can see and talk to it.
        agent_ids: other agents that it may call as tools, with the sight of whoever talks to it.
        time_zone: where its users are, by an IANA name; empty means UTC.
        hooks: stand around each of its steps, each name once.
        mcp_servers: MCP servers whose tools it may use, as far as they are approved.
        approvals: whose calls wait for a person; no tool comes twice.
    """

    display_name: str
    description: str = ""
    system_prompt: str = ""
    model: str = ""
    options: ModelOptions = ModelOptions()
    tools: tuple[str, ...] = ()
    knowledge_base_ids: tuple[KnowledgeBaseId, ...] = ()
    retrieval: Retrieval = Retrieval()
    limits: RunLimits = RunLimits()
    window: Window = Window()
    visibility: Visibility = Visibility.PRIVATE
    agent_ids: tuple[AgentId, ...] = ()
    time_zone: str = ""
    hooks: tuple[HookSetting, ...] = ()
    mcp_servers: tuple[McpBinding, ...] = ()
    approvals: tuple[ToolApproval, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """A model with instructions, tools, knowledge and limits.

    Attributes:
        id: a UUIDv7.
        tenant: the tenant it belongs to.
        owner_user_id: who created it.
        settings: what its owner decides.
        create_time: when it was created.
        update_time: when it last changed.
    """

    id: AgentId
    tenant: str
    owner_user_id: str
    settings: AgentSettings
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation of one user with an agent.

    Attributes:
        id: a UUIDv7.
        tenant: the user's tenant.
        user_id: whose conversation it is; nobody else sees it.
        agent_id: whom it is held with; that agent may be gone.
        title: its name in lists.
        last_sequence: sequence of the newest message; 0 while there is none.
        active_run_id: of the runs that have not ended, the one accepted first.
        create_time: when it was created.
        update_time: when it last got a message or a title.
        parent_run_id: in a sub-agent's session, the run that asked for it.
        parent_call_key: and the idempotency key of the tool call that did.
        time_zone: where its user is, by an IANA name; empty leaves it to the agent.
    """

    id: SessionId
    tenant: str
    user_id: str
    agent_id: AgentId
    title: str
    last_sequence: int
    active_run_id: RunId | None
    create_time: datetime
    update_time: datetime
    parent_run_id: RunId | None = None
    parent_call_key: str | None = None
    time_zone: str = ""
