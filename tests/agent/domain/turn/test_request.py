from dataclasses import replace

import pytest

from services.agent.domain.chat import ModelReply, RunContext
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import ModelOptions, Window
from services.agent.domain.prices import Prices
from services.agent.domain.run_models import Cost, Offered, Usage
from services.agent.domain.turn.plan import Plan
from services.agent.domain.turn.request import Prepared, prepare
from tests.agent.turns import PlainTool, Scene, ScriptedModel, call

CHINESE = "备份在哪里？" * 50  # about 300 tokens


def plan(prompt: str = "Be brief.", context_tokens: int = 0) -> Plan:
    model = ScriptedModel(context_tokens=context_tokens)
    return Plan(model, {"look": PlainTool()}, prompt, Offered(("look",), (), "m"))


def context(window: Window | None = None, options: ModelOptions | None = None) -> RunContext:
    given = Scene(ScriptedModel()).context()
    settings = replace(
        given.agent.settings, window=window or Window(), options=options or ModelOptions()
    )
    turns = [
        replace(given.turn[0], role=role, text=CHINESE) for role in (Role.USER, Role.ASSISTANT) * 3
    ]
    return replace(given, agent=replace(given.agent, settings=settings), history=turns)


def prepared(
    plan_: Plan | None = None, context_: RunContext | None = None, *, closing: bool = False
) -> Prepared:
    given = context_ or context()
    return prepare(plan_ or plan(), given, given.turn, closing=closing)


class TestPrepare:
    def test_instructions_come_first_then_the_history_then_the_question(self) -> None:
        request = prepared().request

        assert request.messages[0].role is Role.SYSTEM
        assert request.messages[0].text == "Be brief."
        assert len(request.messages) == 8
        assert request.messages[-1].text == "Where is the backup?"
        assert [tool.name for tool in request.tools] == ["look"]

    def test_without_instructions_there_is_no_system_message(self) -> None:
        assert prepared(plan("")).request.messages[0].role is Role.USER

    def test_the_closing_question_offers_nothing(self) -> None:
        request = prepared(closing=True).request

        assert request.tools == ()
        assert "Answer now" in request.messages[-1].text

    def test_what_offering_tools_costs_is_counted_where_any_are(self) -> None:
        given = plan()
        model = ScriptedModel()
        model._info = replace(model.info, tools_tokens=300)
        dear = replace(given, model=model)

        assert prepared(dear).tokens == prepared(given).tokens + 300
        assert prepared(dear, closing=True).tokens == prepared(given, closing=True).tokens

    def test_an_estimate_is_priced(self) -> None:
        given = replace(prepared(), tokens=10, prices=Prices("EUR", 10**9, 0, 0))

        assert given.usage(ModelReply("")).cost == Cost("EUR", 10_000)

    def test_its_cost_is_estimated(self) -> None:
        assert 1800 < prepared().tokens < 2000

    @pytest.mark.parametrize(
        ("window", "context_tokens", "options", "shown"),
        [
            (Window(max_messages=3), 0, ModelOptions(), 2),
            (Window(max_tokens=700), 0, ModelOptions(), 2),
            (Window(), 2000, ModelOptions(), 4),
            (Window(), 2000, ModelOptions(max_output_tokens=1200), 2),
            (Window(max_tokens=700), 100_000, ModelOptions(), 2),
            (Window(), 10, ModelOptions(), 0),
        ],
    )
    def test_the_history_keeps_within_every_bound(
        self, window: Window, context_tokens: int, options: ModelOptions, shown: int
    ) -> None:
        request = prepared(plan(context_tokens=context_tokens), context(window, options)).request

        assert len(request.messages) == 1 + shown + 1


class TestBounded:
    @pytest.mark.parametrize(
        ("asked", "left", "bound"), [(None, None, None), (9, None, 9), (None, 5, 5), (9, 5, 5)]
    )
    def test_the_smaller_bound_holds(
        self, asked: int | None, left: int | None, bound: int | None
    ) -> None:
        question = prepared(context_=context(options=ModelOptions(max_output_tokens=asked)))

        assert question.bounded(left).options.max_output_tokens == bound


class TestUsage:
    def test_what_the_server_says_holds(self) -> None:
        assert prepared().usage(ModelReply("x", usage=Usage(1, 2))) == Usage(1, 2)

    def test_else_it_is_estimated_from_all_that_was_written(self) -> None:
        question = prepared()

        usage = question.usage(ModelReply("备份", tool_calls=(call("a"),), reasoning="备份"))

        assert usage.input_tokens == question.tokens
        assert usage.output_tokens > 4


def test_drafts_are_enough_for_a_turn() -> None:
    given = context()

    assert prepare(plan(), given, [Draft(Role.USER, "q")], closing=False).request.messages
