from dataclasses import replace

import pytest

from services.agent.domain.chat import FinishReason, ModelInfo, ModelReply, ModelRequest, Provider
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.messages import Draft, Role
from services.agent.domain.replay.recorded import EndOfRecordError, RecordedModel, driven
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage
from services.agent.domain.turn.replies import answer, asking
from tests.agent.domain.replay.test_compare import ANSWER, ASKED, FOUND, RUN, recording
from tests.agent.turns import call

INFO = ModelInfo("m", "m-1", Provider.OPENAI)
ASK = ModelRequest(())
NOTICE = Draft(Role.ASSISTANT, "I reached the limit.", metadata={"notice": "max_steps"})


def model(*drafts: Draft, run: Run = RUN) -> RecordedModel:
    return RecordedModel(INFO, recording(*drafts, run=run))


async def test_replies_are_given_in_order_as_they_were_read() -> None:
    first = ModelReply(
        "Look.",
        tool_calls=(call("c1"),),
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(7, 3),
        reasoning="Hm.",
        model="m-1-x",
    )
    last = ModelReply("There.", usage=None, model="m")
    recorded = model(asking(first, model="m"), FOUND, answer(last, model="m", retrieved=()))

    assert [first, last] == [await recorded.complete(ASK) for _ in range(2)]
    assert recorded.info is INFO


@pytest.mark.parametrize(
    "kind", [ModelUnavailableError, ModelRejectedError, EmptyAnswerError, ContextTooLongError]
)
async def test_an_error_comes_again(kind: type[Exception]) -> None:
    error = RunError(str(vars(kind).get("reason", "MODEL_REJECTED")), "Why.")
    failed = replace(RUN, state=RunState.ERROR, stop_reason=StopReason.MODEL_ERROR, error=error)
    recorded = model(ASKED, FOUND, run=failed)
    await recorded.complete(ASK)

    with pytest.raises((ModelRejectedError, ModelUnavailableError, EmptyAnswerError)) as raised:
        await recorded.complete(ASK)

    assert (error.reason, "Why.") == (raised.value.reason, raised.value.message)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        (StopReason.MAX_TOKENS, FinishReason.LENGTH),
        (StopReason.MAX_STEPS, FinishReason.STOP),
    ],
)
async def test_a_notice_stands_for_a_reply_with_nothing_in_it(
    reason: StopReason, finish: FinishReason
) -> None:
    recorded = model(NOTICE, run=replace(RUN, stop_reason=reason))

    assert await recorded.complete(ASK) == ModelReply("", finish_reason=finish)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (RunState.CANCELLED, StopReason.CANCELLED),
        (RunState.CANCELLED, StopReason.INTERRUPTED),
        (RunState.FINISHED, StopReason.MAX_DURATION),
        (RunState.ERROR, StopReason.CRASH_LOOP),
        (RunState.ERROR, StopReason.AGENT_DELETED),
        (RunState.ERROR, StopReason.INTERNAL),
        (RunState.FINISHED, StopReason.HOOK),
        (RunState.ERROR, None),
    ],
)
async def test_past_an_end_from_outside_nothing_is_known(
    state: RunState, reason: StopReason | None
) -> None:
    recorded = model(run=replace(RUN, state=state, stop_reason=reason))

    with pytest.raises(EndOfRecordError):
        await recorded.complete(ASK)


def test_what_an_end_from_outside_added_is_left_aside() -> None:
    cut = replace(FOUND, metadata={"error": "interrupted"})
    limit = replace(NOTICE, metadata={"notice": "max_duration"})
    ended = replace(RUN, stop_reason=StopReason.MAX_DURATION)

    outside = driven(recording(ASKED, FOUND, cut, limit, run=ended))
    inside = driven(recording(ASKED, FOUND, ANSWER))

    assert [each.role.name for each in outside] == ["USER", "ASSISTANT", "TOOL"]
    assert len(inside) == 4
