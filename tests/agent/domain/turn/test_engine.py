from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.agent.domain.chat import Ending, FinishReason, ModelReply
from services.agent.domain.drafts import MAX_TOOL_CALLS
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import RunLimits, ToolCallId
from services.agent.domain.run_models import RunError, RunState, StopReason, Usage
from services.agent.domain.turn.engine import (
    LEAST_ANSWER_TOKENS,
    MOST_BYTES,
    MOST_CALLS_AT_ONCE,
    Progress,
    advance,
    begin,
)
from services.agent.domain.turn.steps import (
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
from tests.agent.turns import Scene, ScriptedModel, call, calls, says

COST = Usage(10, 5)
ERROR = RunError("MODEL_UNAVAILABLE", "down")
QUESTION = Draft(Role.USER, "q")


def progress(**fields: Any) -> Progress:
    limits = RunLimits(**fields.pop("limits", {}))
    return Progress(limits=limits, **fields)


def replied(reply: ModelReply) -> Replied:
    return Replied(reply, COST)


def ending(state: RunState, reason: StopReason, error: RunError | None = None) -> Ending:
    return Ending(state, reason, error)


def asks(*ids: str) -> Draft:
    return Draft(Role.ASSISTANT, "", tool_calls=tuple(call(id_) for id_ in ids))


def result(id_: str) -> Draft:
    return Draft(Role.TOOL, "r", tool_call_id=ToolCallId(id_))


def begun(turn: Sequence[Draft], **limits: Any) -> tuple[Progress, Next]:
    run = replace(Scene(ScriptedModel()).context().run, step_count=len(turn) // 2)
    return begin(run, turn, limits=RunLimits(**limits))


CUT = ModelReply("half", finish_reason=FinishReason.LENGTH)
FINISHED, ERROR_STATE = RunState.FINISHED, RunState.ERROR


class TestAdvance:
    @pytest.mark.parametrize(
        ("before", "event", "follows"),
        [
            pytest.param({}, replied(says("a")), (FINISHED, StopReason.END_TURN), id="answer"),
            pytest.param({}, replied(CUT), (FINISHED, StopReason.MAX_TOKENS), id="cut off"),
            pytest.param({}, replied(says(" ")), Ask(), id="empty"),
            pytest.param(
                {"empty_replies": 1},
                replied(says("")),
                (ERROR_STATE, StopReason.MODEL_ERROR),
                id="empty again",
            ),
            pytest.param({}, Failed(ERROR), (ERROR_STATE, StopReason.MODEL_ERROR), id="failed"),
            pytest.param({"steps": 19}, Executed(recorded=True), Ask(), id="executed"),
            pytest.param(
                {"steps": 20}, Executed(recorded=True), Ask(closing=True), id="step limit"
            ),
            pytest.param(
                {"calls": 101}, Executed(recorded=True), Ask(closing=True), id="call limit"
            ),
            pytest.param(
                {"stored": MOST_BYTES - 5}, Executed(recorded=True, stored=5), Ask(), id="stored"
            ),
            pytest.param(
                {"stored": MOST_BYTES - 5},
                Executed(recorded=True, stored=6),
                Ask(closing=True),
                id="output limit",
            ),
            pytest.param({"calls": 100}, Executed(recorded=True), Ask(), id="calls used up"),
            pytest.param(
                {"limits": {"max_tokens": 100}, "usage": Usage(80, 5)},
                Executed(recorded=True),
                (FINISHED, StopReason.MAX_TOKENS),
                id="token limit",
            ),
            pytest.param(
                {"steps": 19}, replied(says("")), Ask(closing=True), id="empty on the last step"
            ),
            pytest.param(
                {"steps": 20, "closing": True},
                replied(says("a")),
                (FINISHED, StopReason.MAX_STEPS),
                id="closing answer",
            ),
            pytest.param(
                {"steps": 20, "closing": True},
                replied(calls(call("a"), text="Let me")),
                (FINISHED, StopReason.MAX_STEPS),
                id="closing asks for tools",
            ),
            pytest.param(
                {"calls": 101, "closing": True},
                Failed(ERROR),
                (FINISHED, StopReason.MAX_TOOL_CALLS),
                id="closing fails",
            ),
            pytest.param(
                {},
                OutOf(StopReason.MAX_DURATION),
                (FINISHED, StopReason.MAX_DURATION),
                id="out of time",
            ),
        ],
    )
    def test_what_follows(
        self, before: dict[str, Any], event: Event, follows: Ask | tuple[RunState, StopReason]
    ) -> None:
        _, step = advance(progress(**before), event)

        if isinstance(step, Finish):
            assert (step.ending.state, step.ending.stop_reason) == follows
        else:
            assert step == follows

    def test_an_answer_is_kept_with_the_end(self) -> None:
        _, step = advance(progress(), replied(says("a")))

        assert step == Finish(ending(FINISHED, StopReason.END_TURN), says("a"), usage=COST, steps=1)

    @pytest.mark.parametrize("reply", [calls(call("a"), text="Let me"), says(""), says(" ")])
    def test_a_closing_reply_that_is_no_answer_is_dropped(self, reply: ModelReply) -> None:
        _, step = advance(progress(steps=20, closing=True), replied(reply))

        assert isinstance(step, Finish)
        assert step.reply is None

    def test_calls_are_recorded_before_they_run(self) -> None:
        after, step = advance(progress(), replied(calls(call("a"), call("b"))))

        assert step == RunTools(
            (PlannedCall(call("a")), PlannedCall(call("b"))),
            reply=calls(call("a"), call("b")),
            usage=COST,
        )
        assert (after.steps, after.calls) == (1, 2)

    def test_calls_over_the_limit_are_answered_and_not_run(self) -> None:
        before = progress(limits={"max_tool_calls": 3}, calls=2)

        _, step = advance(before, replied(calls(call("a"), call("b"))))

        assert isinstance(step, RunTools)
        assert step.calls[0].answer is None
        assert step.calls[1].answer is not None
        assert step.calls[1].answer.error == "tool_call_limit"

    def test_of_a_reply_that_lost_its_way_so_many_calls_are_executed(self) -> None:
        after, step = advance(progress(), replied(calls(*(call(f"c{n}") for n in range(500)))))

        assert isinstance(step, RunTools)
        assert step.reply is not None
        assert len(step.calls) == len(step.reply.tool_calls) == MAX_TOOL_CALLS
        assert all(each.answer is not None for each in step.calls[MOST_CALLS_AT_ONCE:])
        assert after.limit_reached is StopReason.MAX_TOOL_CALLS

    @pytest.mark.parametrize(
        ("taken", "given", "own"),
        [
            ((), ("a", "b"), ["a", "b"]),
            ((), ("a", "a", "a"), ["a", "a_2", "a_3"]),
            (("a", "a_2"), ("a",), ["a_3"]),
            ((), ("", ""), ["call", "call_2"]),
        ],
    )
    def test_ids_are_unique_in_the_run(
        self, taken: tuple[str, ...], given: tuple[str, ...], own: list[str]
    ) -> None:
        before = progress(call_ids=frozenset(map(ToolCallId, taken)))

        _, step = advance(before, replied(calls(*map(call, given))))

        assert isinstance(step, RunTools)
        assert [each.call.id for each in step.calls] == own

    def test_what_empty_replies_cost_is_recorded_with_the_next(self) -> None:
        after, _ = advance(progress(), replied(says("")))

        after, step = advance(after, replied(calls(call("a"))))
        assert isinstance(step, RunTools)
        assert step.usage == COST + COST

        after, _ = advance(after, Executed(recorded=True))
        _, end = advance(after, replied(says("a")))
        assert isinstance(end, Finish)
        assert (end.usage, end.steps) == (COST, 2)

    def test_the_same_call_once_more_after_the_notice_leaves_only_the_closing_question(
        self,
    ) -> None:
        after, answers = progress(), []
        for number in range(5):
            after, step = advance(after, replied(calls(call(f"c{number}"))))
            assert isinstance(step, RunTools)
            answers += [each.answer and each.answer.error for each in step.calls]
            after, step = advance(after, Executed(recorded=True))

        assert answers == [None, None, None, "repeated_call", "repeated_call"]
        assert step == Ask(closing=True)
        _, end = advance(after, replied(says("As far as I know.")))
        assert isinstance(end, Finish)
        assert end.ending == ending(FINISHED, StopReason.REPEATED_CALL)

    def test_an_empty_reply_between_does_not_end_the_row(self) -> None:
        after = progress()
        for number in range(3):
            after, _ = advance(after, replied(calls(call(f"c{number}"))))
            after, _ = advance(after, Executed(recorded=True))
            after, _ = advance(after, replied(says("")))

        _, step = advance(after, replied(calls(call("c3"))))

        assert isinstance(step, RunTools)
        assert step.calls[0].answer is not None

    def test_an_end_without_an_answer_has_a_notice(self) -> None:
        _, step = advance(progress(), Failed(ERROR))
        _, limited = advance(progress(steps=20, closing=True), replied(says("")))
        _, crowded = advance(progress(crowded=True, closing=True), Failed(ERROR))

        assert isinstance(step, Finish)
        assert isinstance(limited, Finish)
        assert isinstance(crowded, Finish)
        assert step.notice == "down"
        assert "limit of 20 steps" in limited.notice
        assert "64 tool calls at once" in crowded.notice

    def test_an_empty_reply_is_forgiven_once_per_step(self) -> None:
        after, _ = advance(progress(), replied(says("")))
        after, _ = advance(after, replied(calls(call("a"))))
        after, _ = advance(after, Executed(recorded=True))

        _, step = advance(after, replied(says("")))

        assert step == Ask()


class TestTokensLeft:
    def test_without_a_limit_there_is_no_bound(self) -> None:
        assert progress().tokens_left(1000) is None

    def test_the_question_counts(self) -> None:
        before = progress(limits={"max_tokens": 100}, usage=Usage(30, 10))

        assert before.tokens_left(20) == 40

    def test_a_limit_below_any_answer_asks_nothing(self) -> None:
        _, step = begun([QUESTION], max_tokens=LEAST_ANSWER_TOKENS - 1)

        assert isinstance(step, Finish)


class TestSubAgents:
    def test_what_is_left_is_shared(self) -> None:
        before = progress(
            limits={"max_tokens": 1000, "max_tool_calls": 10}, usage=Usage(90, 10), calls=3
        )

        assert before.share(3) == RunLimits(max_tool_calls=2, max_tokens=300)
        assert progress(calls=100).share(2) == RunLimits(max_tool_calls=0)

    def test_what_they_use_counts_as_used(self) -> None:
        before = progress(limits={"max_tokens": 1000, "max_tool_calls": 10}, calls=1)

        after, step = advance(before, Executed(recorded=True, usage=Usage(900, 90), tool_calls=3))
        _, closing = advance(before, Executed(recorded=True, tool_calls=10))

        assert (after.usage, after.calls) == (Usage(900, 90), 4)
        assert isinstance(step, Finish)
        assert step.ending == ending(FINISHED, StopReason.MAX_TOKENS)
        assert step.usage == Usage()
        assert closing == Ask(closing=True)

    def test_it_counts_over_a_crash_but_takes_back_no_call(self) -> None:
        run = replace(Scene(ScriptedModel()).context().run, step_count=1, sub_tool_calls=9)
        turn = [QUESTION, asks("a", "b"), result("a")]

        after, step = begin(run, turn, limits=RunLimits(max_tool_calls=10))

        assert step == RunTools((PlannedCall(call("b")),))
        assert after.calls == 11


class TestBegin:
    def test_a_new_run_asks(self) -> None:
        _, step = begun([QUESTION])

        assert step == Ask()

    def test_calls_without_result_are_run_first(self) -> None:
        after, step = begun([QUESTION, asks("a", "b"), result("a")])

        assert step == RunTools((PlannedCall(call("b")),))
        assert (after.steps, after.calls) == (1, 2)

    def test_when_all_are_answered_it_asks(self) -> None:
        _, step = begun([QUESTION, asks("a"), result("a")])

        assert step == Ask()

    def test_the_step_limit_holds_over_a_crash(self) -> None:
        _, step = begun([QUESTION, asks("a"), result("a")], max_steps=1)

        assert step == Ask(closing=True)

    def test_the_limit_of_tool_calls_holds_over_a_crash(self) -> None:
        _, step = begun([QUESTION, asks("a", "b", "c"), result("a")], max_tool_calls=2)

        assert isinstance(step, RunTools)
        assert [each.call.id for each in step.calls] == ["b", "c"]
        assert [each.answer is None for each in step.calls] == [True, False]

    def test_the_limit_of_calls_at_once_holds_over_a_crash(self) -> None:
        ids = [f"c{number}" for number in range(65)]

        _, step = begun([QUESTION, asks(*ids), *map(result, ids)])

        assert step == Ask(closing=True)

    def test_a_row_of_equal_calls_goes_on_over_a_crash(self) -> None:
        rounds = [
            each for number in range(4) for each in (asks(f"c{number}"), result(f"c{number}"))
        ]

        _, third = begun([QUESTION, *rounds[:6]])
        _, unanswered = begun([QUESTION, *rounds[:7]])
        _, noticed = begun([QUESTION, *rounds])
        _, insisted = begun([QUESTION, *rounds, asks("c4"), result("c4")])

        assert (third, noticed, insisted) == (Ask(), Ask(), Ask(closing=True))
        assert isinstance(unanswered, RunTools)
        assert unanswered.calls[0].answer is not None
        assert unanswered.calls[0].answer.error == "repeated_call"

    def test_what_is_stored_counts_over_a_crash(self) -> None:
        large = Draft(Role.TOOL, "x" * MOST_BYTES, tool_call_id=ToolCallId("a"))

        assert begun([QUESTION, asks("a"), large])[1] == Ask(closing=True)
        assert begun([replace(QUESTION, text=large.text), asks("a"), result("a")])[1] == Ask()

    def test_a_call_that_must_not_be_repeated_is_told_unknown(self) -> None:
        run = Scene(ScriptedModel()).context().run
        turn = [QUESTION, asks("a", "b")]

        _, step = begin(run, turn, limits=RunLimits(), unrepeatable=frozenset({ToolCallId("a")}))

        assert isinstance(step, RunTools)
        assert step.calls[0].answer is not None
        assert step.calls[0].answer.error == "unknown_outcome"
        assert step.calls[1].answer is None

    def test_duration_is_the_loop_s_affair(self) -> None:
        assert begun([QUESTION], max_duration=timedelta(0))[1] == Ask()
