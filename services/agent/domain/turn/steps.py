"""What can happen in a run, and what it can do next: the words of `domain.turn.engine`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

from services.agent.domain.approval_models import Question
from services.agent.domain.chat import Ending, ModelReply, ToolResult
from services.agent.domain.messages import ToolCall
from services.agent.domain.run_models import RunError, StopReason, Usage


@dataclass(frozen=True, slots=True)
class Replied:
    """The model answered; `usage` is what that cost, estimated where the server does not say."""

    reply: ModelReply
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The model could not be asked, all retries included."""

    error: RunError


@dataclass(frozen=True, slots=True)
class Executed:
    """Every call of the last reply is answered, as far as nobody has to be asked before.

    Attributes:
        recorded: whether the reply was recorded with this step.
        stored: bytes of all that was recorded with it.
        usage: what sub-agents used for it; their own runs have it on record.
        tool_calls: how many tool calls they made for it.
        questions: about the calls that wait for a person; they, and what follows the first of
            them, are not answered yet.
    """

    recorded: bool
    stored: int = 0
    usage: Usage = field(default_factory=Usage)
    tool_calls: int = 0
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class OutOf:
    """Time or tokens are used up."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class Again:
    """A hook wants the model to be asked again; `usage` is what has been spent on this question."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Ended:
    """A hook ends the run.

    Attributes:
        ending: how.
        reply: the hook's words; None where it fails the run.
        usage: what has been spent on this question; None where the model was not asked.
    """

    ending: Ending
    reply: ModelReply | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Condensed:
    """The model is to be shown less than before, and then asked.

    Attributes:
        recorded: tokens that this cost and that are recorded already.
        owed: and those that are not.
    """

    recorded: Usage = field(default_factory=Usage)
    owed: Usage = field(default_factory=Usage)


Event: TypeAlias = Replied | Failed | Executed | Condensed | OutOf | Again | Ended


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call, and what comes before it is executed.

    Attributes:
        call: the call.
        answer: where it is not to be executed, what answers it instead.
        question: where a person has to be asked first, what.
    """

    call: ToolCall
    answer: ToolResult | None = None
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model; without tools if it is the closing question."""

    closing: bool = False


@dataclass(frozen=True, slots=True)
class RunTools:
    """Record the reply, then answer each call.

    Attributes:
        calls: in the order in which their results are recorded.
        reply: what to record first; None where the transcript holds it already.
        usage: the tokens to record with it.
    """

    calls: tuple[PlannedCall, ...]
    reply: ModelReply | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Wait:
    """Let the run wait for a person; whoever takes it up then goes on with the calls."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run.

    Attributes:
        ending: how.
        reply: the answer; None where there is none.
        notice: says to a person why there is none.
        usage: tokens to record with it.
        steps: questions to record with it.
    """

    ending: Ending
    reply: ModelReply | None = None
    notice: str = ""
    usage: Usage = field(default_factory=Usage)
    steps: int = 0


Next: TypeAlias = Ask | RunTools | Wait | Finish


def before_waiting(calls: Sequence[PlannedCall]) -> tuple[PlannedCall, ...]:
    """Those before the first that waits for a person, as results are in the order of the calls."""
    return tuple(takewhile(lambda each: each.question is None, calls))


def as_committed(
    planned: Sequence[PlannedCall], committed: Sequence[ToolCall]
) -> tuple[PlannedCall, ...]:
    """The same calls as the transcript holds them, so that a later worker would do the same."""
    return tuple(
        each if each.call == call else replace(each, call=call)
        for each, call in zip(planned, committed, strict=True)
    )
