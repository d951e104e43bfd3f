"""What a run does next, as a pure function of what has happened.

    begin(…)                 → progress, next     also where a run goes on after a crash
    advance(progress, event) → progress, next     until next is Finish

    Ask ── Replied ─┬─ tool calls ── RunTools ── Executed ── Ask …
                    ├─ text ──────── Finish
                    └─ nothing ───── Ask once more, then Finish with an error

Limits are checked before anything is spent. The step limit allows that many questions with tools
and then one closing question without; so does the limit of tool calls. Nothing here is stored:
`begin` derives it all from the transcript, which is the journal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from services.agent.domain.chat import Ending, FinishReason, ModelReply, ToolResult
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import RunLimits, ToolCallId
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage
from services.agent.domain.steps import (
    Ask,
    Event,
    Executed,
    Failed,
    Finish,
    Next,
    OutOf,
    PlannedCall,
    Replied,
    RunTools,
)

LEAST_ANSWER_TOKENS: Final = 16
"""With less than this left of a token limit, the model is not asked any more."""

MOST_CALLS_AT_ONCE: Final = 64
"""How many tool calls of one reply are taken; a model that asks for more lost its way."""

_EMPTY_REPLIES_BORNE = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has used up.

    Attributes:
        limits: bound it.
        steps: how often the model was asked with tools.
        calls: tool calls in the transcript.
        usage: tokens so far.
        call_ids: ids of those calls.
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
    empty_replies: int = 0
    closing: bool = False
    owed_steps: int = 0
    owed_usage: Usage = field(default_factory=Usage)

    @property
    def limit_reached(self) -> StopReason | None:
        """The limit that leaves only the closing question, if one does."""
        if self.calls > self.limits.tool_calls:
            return StopReason.MAX_TOOL_CALLS
        return StopReason.MAX_STEPS if self.steps >= self.limits.steps else None

    def tokens_left(self, prompt_tokens: int) -> int | None:
        """How long the next reply may be; None where tokens are not limited."""
        limit = self.limits.max_tokens
        return None if limit is None else limit - self.usage.total - prompt_tokens


def begin(
    run: Run,
    turn: Sequence[Draft],
    *,
    limits: RunLimits,
    unrepeatable: frozenset[ToolCallId] = frozenset(),
) -> tuple[Progress, Next]:
    """Where a run stands and what it does next, from its transcript.

    Args:
        run: its step count and usage go on from here.
        turn: its messages so far, the user's first.
        limits: bound it.
        unrepeatable: calls that were begun, have no result, and must not be begun again.
    """
    calls = [call for message in turn for call in message.tool_calls]
    progress = Progress(
        limits=limits,
        steps=max(run.step_count, sum(bool(message.tool_calls) for message in turn)),
        calls=len(calls),
        usage=run.usage,
        call_ids=frozenset(call.id for call in calls),
    )
    answered = {message.tool_call_id for message in turn if message.role is Role.TOOL}
    planned = [
        _unknown_outcome(each) if each.call.id in unrepeatable else each
        for each in _planned(calls, limits)
        if each.call.id not in answered
    ]
    return (progress, RunTools(tuple(planned))) if planned else _ask(progress)


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
        case Executed(recorded):
            owed = progress.owed_steps - recorded
            return _ask(replace(progress, owed_steps=owed, owed_usage=Usage()))
        case OutOf(reason):
            return _finish(progress, Ending(RunState.FINISHED, reason), reply=None)
        case _:
            assert_never(event)


def _ask(progress: Progress) -> tuple[Progress, Next]:
    left = progress.tokens_left(0)
    if left is not None and left < LEAST_ANSWER_TOKENS:
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
    calls = _with_own_ids(reply.tool_calls[:MOST_CALLS_AT_ONCE], progress.call_ids)
    planned = _planned(calls, progress.limits, before=progress.calls)
    after = replace(
        progress,
        calls=progress.calls + len(calls),
        call_ids=progress.call_ids | {call.id for call in calls},
        empty_replies=0,
    )
    recorded = replace(reply, tool_calls=calls)
    return after, RunTools(tuple(planned), reply=recorded, usage=progress.owed_usage)


def _closed(progress: Progress, reply: ModelReply | None) -> tuple[Progress, Next]:
    reason = progress.limit_reached or StopReason.MAX_STEPS
    return _finish(progress, Ending(RunState.FINISHED, reason), reply=reply)


def _finish(
    progress: Progress, ending: Ending, *, reply: ModelReply | None
) -> tuple[Progress, Next]:
    finish = Finish(ending, reply, usage=progress.owed_usage, steps=progress.owed_steps)
    return progress, finish


def _planned(calls: Sequence[ToolCall], limits: RunLimits, *, before: int = 0) -> list[PlannedCall]:
    return [
        PlannedCall(call) if number <= limits.tool_calls else _over_limit(call, limits)
        for number, call in enumerate(calls, start=before + 1)
    ]


def _over_limit(call: ToolCall, limits: RunLimits) -> PlannedCall:
    text = f"Error: not executed, because the limit of {limits.tool_calls} tool calls is reached."
    return PlannedCall(call, ToolResult(text, error="tool_call_limit"))


def _unknown_outcome(planned: PlannedCall) -> PlannedCall:
    text = (
        "Error: the outcome is unknown. The call was begun before an interruption and may or may "
        "not have had its effect; it was not repeated."
    )
    return PlannedCall(planned.call, ToolResult(text, error="unknown_outcome"))


def _with_own_ids(calls: Sequence[ToolCall], taken: frozenset[ToolCallId]) -> tuple[ToolCall, ...]:
    ids = set(taken)
    own = []
    for call in calls:
        unique, number = call.id or ToolCallId("call"), 1
        while unique in ids:
            number += 1
            unique = ToolCallId(f"{call.id or 'call'}_{number}")
        ids.add(unique)
        own.append(replace(call, id=unique))
    return tuple(own)
