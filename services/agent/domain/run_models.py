"""Runs: the work that answers one user message each, and what is known of it."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from services.agent.domain.models import (
    AgentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    RunLimits,
    SessionId,
)


class RunState(Enum):
    """Where a run stands."""

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
        """Whether it has ended."""
        return self in {RunState.FINISHED, RunState.ERROR, RunState.CANCELLED}

    @property
    def in_hand(self) -> bool:
        """Whether a worker holds it; nobody does while it waits for its turn or for a person."""
        return not self.final and self not in {RunState.IDLE, RunState.AWAITING_APPROVAL}


class StopReason(Enum):
    """Why a run ended; the contract says more of each."""

    END_TURN = "end_turn"
    MAX_STEPS = "max_steps"
    MAX_TOKENS = "max_tokens"
    MAX_TOOL_CALLS = "max_tool_calls"
    MAX_DURATION = "max_duration"
    MAX_OUTPUT = "max_output"
    REPEATED_CALL = "repeated_call"
    CANCELLED = "cancelled"
    MODEL_ERROR = "model_error"
    CRASH_LOOP = "crash_loop"
    INTERNAL = "internal"
    AGENT_DELETED = "agent_deleted"
    INTERRUPTED = "interrupted"
    HOOK = "hook"


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs.

    Attributes:
        currency: in the three letters of ISO 4217.
        nanos: billionths of a unit of it.
    """

    currency: str
    nanos: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a model processed.

    Attributes:
        input_tokens: what it read.
        output_tokens: what it wrote.
        cached_input_tokens: those of `input_tokens` that its server had read before.
        reasoning_tokens: those of `output_tokens` that were thoughts.
        cost: at the prices that were configured then; None where there were none.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Cost | None = None

    @property
    def total(self) -> int:
        """What it read and wrote together."""
        return self.input_tokens + self.output_tokens

    def __sub__(self, other: "Usage") -> "Usage":
        """What is left without a part of it."""
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_input_tokens - other.cached_input_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
            _difference(self.cost, other.cost),
        )

    def __add__(self, other: "Usage") -> "Usage":
        """Both together; of costs in two currencies only the later one's can be told."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            _sum(self.cost, other.cost),
        )


def _difference(whole: Cost | None, part: Cost | None) -> Cost | None:
    if whole is None or part is None or whole.currency != part.currency:
        return whole
    return Cost(whole.currency, whole.nanos - part.nanos)


def _sum(first: Cost | None, later: Cost | None) -> Cost | None:
    if first is None or later is None:
        return later or first
    if first.currency != later.currency:
        return later
    return Cost(later.currency, first.nanos + later.nanos)


@dataclass(frozen=True, slots=True)
class Offered:
    """What a run's model could use, as it was when the run was last planned.

    Attributes:
        tools: names of the tools.
        knowledge_base_ids: the bases.
        model: name of the model.
        hooks: names of the hooks that hold, outermost first.
    """

    tools: tuple[str, ...]
    knowledge_base_ids: tuple[KnowledgeBaseId, ...]
    model: str
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunError:
    """What went wrong with a run.

    Attributes:
        reason: for programs, an `ErrorReason` of the contract such as "MODEL_UNAVAILABLE".
        message: for people.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run's earlier attempts have used up.

    Attributes:
        steps: how often the model was asked.
        calls: tool calls.
        tokens: in and out together.
    """

    steps: int = 0
    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Parent:
    """Who asked for the run of a sub-agent.

    Attributes:
        run_id: the run that did.
        call_key: the idempotency key of the tool call that did; a call has one such run.
        callers: the agents from the user's own down to the one that asked.
        limits: what that run had left for it.
    """

    run_id: RunId
    call_key: str
    callers: tuple[AgentId, ...]
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Run:
    """The work that answers one user message.

    Attributes:
        id: a UUIDv7.
        session_id: the session it belongs to.
        tenant: the tenant it works for.
        user_id: the user it works for.
        agent_id: who answers.
        message_id: the user message it answers.
        turn: that message's sequence; runs of a session are worked on in this order.
        state: where it stands.
        stop_reason: why it ended; None too if only a later release knows the reason.
        step_count: how often the model has been asked, in all attempts together.
        usage: what models have processed so far, in all attempts together, sub-agents included.
        sub_usage: the sub-agents' part of it, as of the last result or the end.
        sub_tool_calls: how many tool calls those have made.
        offered: what the model could use; None until planned.
        error: what went wrong, with ERROR.
        cancel_reason: it was asked to stop, for CANCELLED or INTERRUPTED, and has not done so yet.
        discarded: it was rolled back; no model is shown its messages any more.
        attempt: from 1, counted up whenever it is retried after an ERROR.
        before: what the attempts before this one used up.
        create_time: when it was accepted.
        start_time: when a worker first took it in this attempt.
        end_time: when it ended.
        parent: who asked for it; None where a user did.
    """

    id: RunId
    session_id: SessionId
    tenant: str
    user_id: str
    agent_id: AgentId
    message_id: MessageId
    turn: int
    state: RunState
    create_time: datetime
    stop_reason: StopReason | None = None
    step_count: int = 0
    usage: Usage = Usage()
    sub_usage: Usage = Usage()
    sub_tool_calls: int = 0
    offered: Offered | None = None
    error: RunError | None = None
    cancel_reason: StopReason | None = None
    discarded: bool = False
    attempt: int = 1
    before: Spent = Spent()
    start_time: datetime | None = None
    end_time: datetime | None = None
    parent: Parent | None = None

    @property
    def callers(self) -> tuple[AgentId, ...]:
        """The agents above this one that wait for it, the user's own first."""
        return () if self.parent is None else self.parent.callers

    @property
    def cancel_requested(self) -> bool:
        """Whether it was asked to stop and has not done so yet."""
        return self.cancel_reason is not None

    def bounds(self, limits: RunLimits) -> RunLimits:
        """What bounds its counts, as each attempt has the limits to itself."""
        if self.parent is not None:
            limits = limits.within(self.parent.limits)
        tokens = limits.max_tokens
        return replace(
            limits,
            max_steps=limits.steps + self.before.steps,
            max_tool_calls=limits.tool_calls + self.before.calls,
            max_tokens=None if tokens is None else tokens + self.before.tokens,
        )


class WhenBusy(Enum):
    """What happens to a message for a session that is busy with other runs.

    INTERRUPT ends them all and keeps what they did; ROLLBACK discards them and their messages too.
    """

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
