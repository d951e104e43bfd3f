"""What a hook is: code of an operator's that is called around each step of a run.

    before_agent                        once, before the first question
    before_model → the model → after_model     each question
    before_tool  → the tool  → after_tool      each tool call
    on_error                            the run is about to fail
    after_agent                         the run is about to end with its last words

Hooks with lower priority are outside of those with higher: `before_…` goes from the outermost
inwards, `after_…` back from the innermost. What a hook returns changes what those further on see;
None changes nothing. A hook that puts something in the model's place, from whatever position,
turns the way round: the hooks further out see it in `after_model`, as they would see a reply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from services.agent.domain.chat import ModelInfo, ModelReply, ModelRequest, ToolResult
from services.agent.domain.messages import Message, ToolCall
from services.agent.domain.models import Agent, RunId, SessionId
from services.agent.domain.run_models import RunError
from services.common.identity import Identity

DEFAULT_PRIORITY: Final = 100
DEFAULT_SECONDS: Final = 5.0


class HookConfig(BaseModel):
    """The base of every hook's configuration; its JSON Schema is told by ListHooks."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OnFailure(Enum):
    """What becomes of a run whose hook raises or takes too long."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class End:
    """Ends the run with these words in place of an answer.

    Attributes:
        text: for the user.
        error: a reason for programs, in UPPER_SNAKE_CASE, at most 64 characters; where it is given,
            the run ends in ERROR.
    """

    text: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallTools:
    """Goes to the tools with these calls, as if the model had asked for them; counts a step.

    Attributes:
        calls: at least one; an empty id is made up.
        text: what is said besides.
    """

    calls: tuple[ToolCall, ...]
    text: str = ""

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("there must be a call at least")


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Asks the model again, and drops its reply; counts a step.

    Attributes:
        note: what the model is told in the next question, in a user's place, after its own reply.
    """

    note: str = ""


Jump: TypeAlias = End | CallTools | AskAgain
"""Where a hook sends the run in place of what would come next."""


@dataclass(frozen=True, slots=True)
class CallCounts:
    """How often things were called.

    Attributes:
        model: questions to the model.
        tools: tool calls, by the tool's name.
    """

    model: int = 0
    tools: Mapping[str, int] = field(default_factory=dict)


class CallHistory(Protocol):
    """Tells what was called in a session."""

    async def calls_of_others(self, session_id: SessionId, run_id: RunId) -> CallCounts:
        """What the other runs of a session have called, discarded runs included."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """What a hook may know of the run.

    Attributes:
        identity: on whose behalf it works.
        agent: who answers.
        session_id: where.
        run_id: the run.
        model: who is asked.
        steps: how often the model had been asked when this worker took the run up.
        messages: what is committed of the run so far, the user's message first; it grows.
        history: tells what the session's other runs have called.
    """

    identity: Identity
    agent: Agent
    session_id: SessionId
    run_id: RunId
    model: ModelInfo
    steps: int
    messages: Sequence[Message]
    history: CallHistory


ConfigT_co = TypeVar("ConfigT_co", bound=HookConfig, covariant=True)


class Hook(Generic[ConfigT_co]):
    """The base of all hooks: override the positions that are wanted, the others do nothing.

    One is made for each run, and again when another worker takes the run up; so what it keeps in
    itself is of that run alone, and may be lost. The docstring of a class is its description.

    Attributes:
        name: selects it in an agent; at most 64 letters, digits, "_" and "-".
        config_type: its configuration.
        priority: where it stands unless an agent says otherwise.
        seconds: how long one call of a position may take.
        on_failure: what becomes of the run where it raises or takes longer.
        config: as the agent has it.
    """

    name: ClassVar[str]
    config_type: ClassVar[type[HookConfig]] = HookConfig
    priority: ClassVar[int] = DEFAULT_PRIORITY
    seconds: ClassVar[float] = DEFAULT_SECONDS
    on_failure: ClassVar[OnFailure] = OnFailure.FAIL

    def __init__(self, config: ConfigT_co) -> None:
        self.config = config

    async def before_agent(self, run: HookRun) -> End | None:
        """Before the first question of a run; not again once a step of it is committed."""

    async def before_model(self, request: ModelRequest, run: HookRun) -> ModelRequest | Jump | None:
        """Before a question; another request holds for this question alone."""

    async def after_model(self, reply: ModelReply, run: HookRun) -> ModelReply | Jump | None:
        """After a reply and before anything of it is committed."""

    async def before_tool(self, call: ToolCall, run: HookRun) -> ToolCall | ToolResult | None:
        """Before a call: other arguments, which are checked as any, or what answers it instead."""

    async def after_tool(
        self, call: ToolCall, result: ToolResult, run: HookRun
    ) -> ToolResult | None:
        """After a call and before its result is committed, errors included."""

    async def on_error(self, error: RunError, run: HookRun) -> End | None:
        """Before a run ends in ERROR: what to end it with instead; the first hook's answer holds.

        Not called for faults of ChatMind, and not where the worker was lost.
        """

    async def after_agent(self, text: str, run: HookRun) -> str | None:
        """Before the last message is committed; another text replaces the answer or notice.

        Not called where the user or the agent's owner ends the run.
        """


POSITIONS: Final = (
    "before_agent",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "on_error",
    "after_agent",
)


def positions(kind: type[Hook[HookConfig]]) -> tuple[str, ...]:
    """The positions that a hook makes something of."""
    return tuple(name for name in POSITIONS if getattr(kind, name) is not getattr(Hook, name))
