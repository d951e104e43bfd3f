"""What a run does next, as a pure function of what has happened.

    begin(…)                 → progress, next     also where a run goes on after a crash
    advance(progress, event) → progress, next     until next is Finish or Wait

    Ask ── Replied ─┬─ tool calls ── RunTools ── Executed ─┬─ Ask …
                    │                                      └─ Wait, where a person has to be asked
                    ├─ text ──────── Finish
                    └─ nothing ───── Ask once more, then Finish with an error
         Condensed ── Ask

    A hook may turn a question into Again ── Ask, or Ended ── Finish.

Limits are checked before anything is spent, and each has a stop reason of its own. The step limit
allows that many questions with tools and then one closing question without; so do the limits of
tool calls and of what is stored, and a model that keeps repeating a call. Out of time or tokens,
nothing is asked any more. Where a run ends without an answer, a notice says why. Nothing here is
stored: `begin` derives it all from the transcript, which is the journal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from services.agent.domain.chat import Ending, FinishReason, ModelReply, ToolResult
from services.agent.domain.drafts import MAX_TOOL_CALLS, fit_id, kept_size
from services.agent.domain.ledger import UNKNOWN_OUTCOME
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import RunLimits, ToolCallId
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage
from services.agent.domain.turn.notices import at_once_notice, limit_notice
from services.agent.domain.turn.repeats import Keys, Row, call_key
from services.agent.domain.turn.steps import (
    Again,
    Ask,
    Condensed,
    Ended,
    Event,
    Executed,
    Failed,
    Finish,
    Next,
    OutOf,
    PlannedCall,
    Replied,
    RunTools,
    Wait,
)

LEAST_ANSWER_TOKENS: Final = 16
"""With less than this left of a token limit, the model is not asked any more."""

MOST_CALLS_AT_ONCE: Final = 64
"""How many tool calls of one reply are executed; a model that asks for more lost its way."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""How much a run may have stored, on the wire, and still ask for tools."""

_EMPTY_REPLIES_BORNE = 1
_REPEATED: Final = ToolResult(
    "Error: not executed again, because you have just made this very call several times; its "
    "results are above. Go on from them, call something else, or answer.",
    error="repeated_call",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has used up.

    Attributes:
        limits: bound it.
        steps: how often the model was asked with tools.
        calls: tool calls in the transcript, and those of sub-agents.
        usage: tokens so far.
        call_ids: ids of those calls.
        crowded: whether the last of them came too many at once.
        row: those that the model keeps asking for.
        stored: bytes of all messages but the user's.
        empty_replies: how many came since the last reply with something in it.
        closing: whether the closing question has been asked.
        owed_steps: questions that the journal does not know of yet.
        owed_usage: tokens that the journal does not know of yet.
    """

    limits: RunLimits
    steps: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    call_ids: frozenset[ToolCallId] = frozenset()
    crowded: bool = False
    row: Row = field(default_factory=Row)
    stored: int = 0
    empty_replies: int = 0
    closing: bool = False
    owed_steps: int = 0
    owed_usage: Usage = field(default_factory=Usage)

    @property
    def limit_reached(self) -> StopReason | None:
        """The limit that leaves only the closing question, if one does."""
        if self.crowded or self.calls > self.limits.tool_calls:
            return StopReason.MAX_TOOL_CALLS
        if self.row.insisted:
            return StopReason.REPEATED_CALL
        if self.stored > MOST_BYTES:
            return StopReason.MAX_OUTPUT
        return StopReason.MAX_STEPS if self.steps >= self.limits.steps else None

    def share(self, parts: int) -> RunLimits:
        """What is left, in so many equal parts; how long it may take is not among it."""
        tokens = self.tokens_left(0)
        return RunLimits(
            max_tool_calls=max(self.limits.tool_calls - self.calls, 0) // parts,
            max_tokens=None if tokens is None else max(tokens, 0) // parts,
        )

    def tokens_left(self, prompt_tokens: int) -> int | None:
        """How long the next reply may be; None where tokens are not limited."""
        limit = self.limits.max_tokens
        return None if limit is None else limit - self.usage.total - prompt_tokens

    def affords(self, prompt_tokens: int) -> bool:
        """Whether enough tokens are left for a question of this length and its answer."""
        left = self.tokens_left(prompt_tokens)
        return left is None or left >= LEAST_ANSWER_TOKENS


def begin(
    run: Run,
    turn: Sequence[Draft],
    *,
    limits: RunLimits,
    unrepeatable: frozenset[ToolCallId] = frozenset(),
    key: Keys = call_key,
) -> tuple[Progress, Next]:
    """Where a run stands and what it does next, from its transcript.

    Args:
        run: its step count and usage go on from here.
        turn: its messages so far, the user's first.
        limits: bound it.
        unrepeatable: calls that were begun, have no result, and must not be begun again.
        key: tells which calls are equal.
    """
    progress = Progress(limits=limits, usage=run.usage, row=Row(key=key))
    planned = list[PlannedCall]()
    for message in turn:
        if message.tool_calls:
            progress, taken = _taking(progress, message.tool_calls)
            planned += taken
    progress = replace(
        progress,
        calls=progress.calls + run.sub_tool_calls,
        steps=max(run.step_count, sum(bool(message.tool_calls) for message in turn)),
        stored=sum(kept_size(message) for message in turn if message.role is not Role.USER),
    )
    answered = {message.tool_call_id for message in turn if message.role is Role.TOOL}
    left = tuple(
        _unknown_outcome(each) if each.call.id in unrepeatable else each
        for each in planned
        if each.call.id not in answered
    )
    return (progress, RunTools(left)) if left else _ask(progress)


def advance(progress: Progress, event: Event) -> tuple[Progress, Next]:
    """What follows an event."""
    match event:
        case Replied(reply, usage):
            return _replied(_owing(progress, usage), reply)
        case Failed(error):
            progress = _owing(progress, Usage())
            if progress.closing:
                return _closed(progress, None)
            return _finish(
                progress, Ending(RunState.ERROR, StopReason.MODEL_ERROR, error), reply=None
            )
        case Executed(recorded, stored, usage, tool_calls, questions):
            progress = replace(
                progress,
                owed_steps=progress.owed_steps - recorded,
                owed_usage=Usage(),
                stored=progress.stored + stored,
                usage=progress.usage + usage,
                calls=progress.calls + tool_calls,
            )
            return (progress, Wait(questions)) if questions else _ask(progress)
        case Condensed(recorded, owed):
            usage, unrecorded = progress.usage + recorded + owed, progress.owed_usage + owed
            return _ask(replace(progress, usage=usage, owed_usage=unrecorded))
        case OutOf(reason):
            return _finish(progress, Ending(RunState.FINISHED, reason), reply=None)
        case Again(usage):
            progress = _owing(progress, usage)
            return _closed(progress, None) if progress.closing else _ask(progress)
        case Ended(ending, reply, usage):
            spent = progress if usage is None else _owing(progress, usage)
            return _finish(spent, ending, reply=reply)
        case _:
            assert_never(event)


def _ask(progress: Progress) -> tuple[Progress, Next]:
    if not progress.affords(0):
        return advance(progress, OutOf(StopReason.MAX_TOKENS))
    if progress.limit_reached:
        return replace(progress, closing=True), Ask(closing=True)
    return progress, Ask()


def _owing(progress: Progress, usage: Usage) -> Progress:
    return replace(
        progress,
        steps=progress.steps + (not progress.closing),
        usage=progress.usage + usage,
        owed_steps=progress.owed_steps + 1,
        owed_usage=progress.owed_usage + usage,
    )


def _replied(progress: Progress, reply: ModelReply) -> tuple[Progress, Next]:
    text = reply.text.strip()
    if progress.closing:
        return _closed(progress, reply if text and not reply.tool_calls else None)
    if reply.tool_calls:
        return _called(progress, reply)
    if reply.finish_reason is FinishReason.LENGTH:
        ending = Ending(RunState.FINISHED, StopReason.MAX_TOKENS)
        return _finish(progress, ending, reply=reply if text else None)
    if text:
        return _finish(progress, Ending(RunState.FINISHED, StopReason.END_TURN), reply=reply)
    if progress.empty_replies < _EMPTY_REPLIES_BORNE:
        return _ask(replace(progress, empty_replies=progress.empty_replies + 1))
    error = RunError("EMPTY_ANSWER", "The model gave no answer, asked twice.")
    return _finish(progress, Ending(RunState.ERROR, StopReason.MODEL_ERROR, error), reply=None)


def _called(progress: Progress, reply: ModelReply) -> tuple[Progress, Next]:
    calls = _with_own_ids(reply.tool_calls[:MAX_TOOL_CALLS], progress.call_ids)
    after, planned = _taking(progress, calls)
    recorded = reply if calls == reply.tool_calls else replace(reply, tool_calls=calls)
    return after, RunTools(tuple(planned), reply=recorded, usage=progress.owed_usage)


def _taking(
    progress: Progress, calls: Sequence[ToolCall]
) -> tuple[Progress, Sequence[PlannedCall]]:
    """The calls of one reply: which are executed, and what answers the others."""
    row, repeated = progress.row.then(calls)
    planned = []
    for place, call in enumerate(calls, start=1):
        answer: ToolResult | None = None
        if place > MOST_CALLS_AT_ONCE:
            answer = _not_executed(f"of {MOST_CALLS_AT_ONCE} tool calls at once")
        elif progress.calls + place > progress.limits.tool_calls:
            answer = _not_executed(f"of {progress.limits.tool_calls} tool calls")
        elif call.id in repeated:
            answer = _REPEATED
        planned.append(PlannedCall(call, answer))
    after = replace(
        progress,
        calls=progress.calls + len(calls),
        call_ids=progress.call_ids | {call.id for call in calls},
        crowded=len(calls) > MOST_CALLS_AT_ONCE,
        row=row,
        empty_replies=0,
    )
    return after, planned


def _not_executed(limit: str) -> ToolResult:
    text = f"Error: not executed, because the limit {limit} is reached."
    return ToolResult(text, error="tool_call_limit")


def _closed(progress: Progress, reply: ModelReply | None) -> tuple[Progress, Next]:
    reason = progress.limit_reached or StopReason.MAX_STEPS
    return _finish(progress, Ending(RunState.FINISHED, reason), reply=reply)


def _finish(
    progress: Progress, ending: Ending, *, reply: ModelReply | None
) -> tuple[Progress, Next]:
    notice = "" if reply is not None else _notice(progress, ending)
    finish = Finish(ending, reply, notice, usage=progress.owed_usage, steps=progress.owed_steps)
    return progress, finish


def _notice(progress: Progress, ending: Ending) -> str:
    if ending.error is not None:
        return ending.error.message
    if ending.stop_reason is StopReason.MAX_TOOL_CALLS and progress.crowded:
        return at_once_notice(MOST_CALLS_AT_ONCE)
    return limit_notice(ending.stop_reason, progress.limits)


def _unknown_outcome(planned: PlannedCall) -> PlannedCall:
    text = (
        "Error: the outcome is unknown. The call was begun before an interruption and may or may "
        "not have had its effect; it was not repeated."
    )
    return PlannedCall(planned.call, ToolResult(text, error=UNKNOWN_OUTCOME))


def _with_own_ids(calls: Sequence[ToolCall], taken: frozenset[ToolCallId]) -> tuple[ToolCall, ...]:
    ids = set(taken)
    own = []
    for call in calls:
        # As it is stored, lest two become alike when they are cut.
        unique, number = fit_id(call.id) or ToolCallId("call"), 1
        while unique in ids:
            number += 1
            unique = fit_id(call.id or "call", mark=f"_{number}")
        ids.add(unique)
        own.append(call if call.id == unique else replace(call, id=unique))
    return tuple(own)
