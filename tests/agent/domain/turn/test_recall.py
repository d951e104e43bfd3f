"""What a run's model is shown, with every strategy, by the real loop over stores in memory."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult
from services.agent.domain.errors import ContextTooLongError, ModelUnavailableError
from services.agent.domain.hooks.hook import End, Hook, HookConfig, HookRun, Jump
from services.agent.domain.hooks.pii.hook import PiiMasking
from services.agent.domain.memory.models import Summary
from services.agent.domain.messages import Role
from services.agent.domain.models import RunLimits, Window, WindowStrategy
from services.agent.domain.run_models import RunState, StopReason, Usage
from services.agent.domain.turn.tokens import estimate_message
from tests.agent.conversation import Conversation, SmallModel, is_summary
from tests.agent.turns import PlainTool, call, calls, says
from tests.contracts.agent_stores import ALICE

BUDGET = Window(strategy=WindowStrategy.TOKEN_BUDGET)
COMPACTION = Window(strategy=WindowStrategy.COMPACTION)
LONG = "x" * 2000


def cost(request: ModelRequest) -> int:
    return sum(estimate_message(message) for message in request.messages)


def shown(request: ModelRequest) -> list[str]:
    """What is shown of the conversation, the instructions aside."""
    return [message.text for message in request.messages[1:]]


async def remembered(conversation: Conversation) -> Summary | None:
    session = await conversation.session()
    return (await conversation.stores.memories.get(ALICE, session.id)).summary


class TestWindowStrategy:
    async def test_the_newest_twenty_messages_are_shown(self) -> None:
        conversation = Conversation(SmallModel(8000), window=Window())
        for number in range(15):
            await conversation.say(f"question {number}")

        assert len(shown(conversation.model.questions[-1])) == 19
        assert conversation.model.summaries == []


class TestTokenBudget:
    async def test_more_than_twenty_messages_are_shown_where_they_fit(self) -> None:
        conversation = Conversation(SmallModel(8000), window=BUDGET)
        for number in range(40):
            await conversation.say(f"question {number}")

        assert len(shown(conversation.model.questions[-1])) == 79
        assert conversation.model.refused == conversation.model.summaries == []

    async def test_whole_turns_that_do_not_fit_are_left_out(self) -> None:
        conversation = Conversation(SmallModel(3000), window=BUDGET)
        for number in range(12):
            run = await conversation.say(f"{number} {LONG}")
            assert run.state is RunState.FINISHED

        texts = shown(conversation.model.questions[-1])
        assert 3 <= len(texts) < 12
        assert texts[0].endswith(LONG)
        assert conversation.model.refused == conversation.model.summaries == []

    async def test_a_bound_on_messages_holds_as_well(self) -> None:
        conversation = Conversation(SmallModel(8000), window=replace(BUDGET, max_messages=4))
        for number in range(5):
            await conversation.say(f"question {number}")

        assert shown(conversation.model.questions[-1]) == [
            "question 3",
            "to question 3",
            "question 4",
        ]

    async def test_an_unknown_context_is_found_out_and_the_question_asked_once_more(self) -> None:
        conversation = Conversation(SmallModel(2000, told=False), window=BUDGET)
        for number in range(8):
            run = await conversation.say(f"{number} {LONG}")
            assert run.state is RunState.FINISHED

        assert len(conversation.model.refused) >= 1
        assert len(conversation.model.questions) <= 8 + 8
        assert all(each.text.startswith("to ") for each in await conversation.answers())

    async def test_a_question_that_is_too_long_by_itself_fails_at_once(self) -> None:
        conversation = Conversation(SmallModel(2000), window=BUDGET)

        run = await conversation.say("x" * 40_000)

        assert (run.state, run.stop_reason) == (RunState.ERROR, StopReason.MODEL_ERROR)
        assert run.error is not None
        assert run.error.reason == "MODEL_REJECTED"
        assert len(conversation.model.requests) == 1
        assert (await conversation.say("short")).state is RunState.FINISHED


class TestResults:
    @pytest.mark.parametrize("window", [Window(), BUDGET, COMPACTION])
    async def test_a_result_larger_than_the_context_does_not_end_the_run(
        self, window: Window
    ) -> None:
        tool = PlainTool(gives=lambda arguments: ToolResult("y" * 200_000))
        conversation = Conversation(SmallModel(2000), window=window, tools=[tool])
        conversation.model.script = [calls(call("a")), calls(call("b", arguments='{"what": "y"}'))]

        run = await conversation.say("Go.")

        assert (run.state, run.stop_reason) == (RunState.FINISHED, StopReason.END_TURN)
        assert conversation.model.refused == []
        assert "characters in all]" in conversation.model.questions[-1].messages[-1].text

    async def test_a_turn_longer_than_the_window_keeps_its_question(self) -> None:
        tool = PlainTool(gives=lambda arguments: ToolResult("y" * 1500))
        conversation = Conversation(SmallModel(2500), tools=[tool])
        conversation.model.script = [
            calls(call(f"c{n}", arguments=f'{{"what": "{n}"}}')) for n in range(12)
        ]

        run = await conversation.say("Do the long job.")

        assert run.state is RunState.FINISHED
        assert conversation.model.refused == conversation.model.summaries == []
        for request in conversation.model.questions:
            assert "Do the long job." in shown(request)
        assert "no longer shown" in conversation.model.questions[-1].messages[0].text


class TestCompaction:
    async def test_what_no_longer_fits_is_replaced_by_one_summary(self) -> None:
        conversation = Conversation(SmallModel(3000))
        for number in range(20):
            run = await conversation.say(f"{number} {LONG}")
            assert run.state is RunState.FINISHED

        model, summary = conversation.model, await remembered(conversation)
        assert model.refused == []
        assert 3 <= len(model.summaries) < 15
        assert summary is not None
        instructions, question, aside, *rest = model.questions[-1].messages
        assert instructions.text.startswith("Be brief.")
        assert question.role is Role.USER
        assert question.text.startswith("0 xxx")
        assert aside == ChatMessage(Role.ASSISTANT, aside.text)
        assert f"\n{summary.text}\n" in aside.text
        assert rest[-1].text.startswith("19 ")

    async def test_the_answer_tells_that_a_summary_was_shown(self) -> None:
        conversation = Conversation(SmallModel(3000))
        for number in range(8):
            await conversation.say(f"{number} {LONG}")

        first, *_, last = await conversation.answers()
        summary = await remembered(conversation)
        assert summary is not None
        assert "summarised_through" not in first.metadata
        assert last.metadata["summarised_through"] == summary.through_turn

    async def test_every_message_stays_readable(self) -> None:
        conversation = Conversation(SmallModel(3000))
        for number in range(10):
            await conversation.say(f"{number} {LONG}")

        said = await conversation.said()
        assert [f"{number} {LONG}" for number in range(10)] == [
            each.text for each in said if each.role is Role.USER
        ]
        assert len(said) == 20

    async def test_the_next_run_goes_on_from_the_summary_there_is(self) -> None:
        conversation = Conversation(SmallModel(3000))
        for number in range(12):
            await conversation.say(f"{number} {LONG}")

        summaries = conversation.model.summaries
        for number, request in enumerate(summaries[1:], start=1):
            assert f"<notes>\nnotes {number}\n</notes>" in request.messages[1].text
        records = "".join(request.messages[1].text for request in summaries)
        assert records.count("[user] 0 ") == 1

    async def test_it_counts_toward_the_runs_usage(self) -> None:
        conversation = Conversation(SmallModel(3000, usage=True))
        runs = [await conversation.say(f"{number} {LONG}") for number in range(10)]

        spent = sum((run.usage for run in runs), Usage())
        assert spent.input_tokens == sum(cost(each) for each in conversation.model.requests)
        assert all(run.step_count == 1 for run in runs)
        assert conversation.model.summaries

    async def test_the_limit_of_tokens_is_kept(self) -> None:
        conversation = Conversation(SmallModel(3000, usage=True), limits=RunLimits(max_tokens=2600))
        runs = [await conversation.say(f"{number} {LONG}") for number in range(10)]

        assert all(run.usage.total <= 2600 for run in runs)
        assert all(run.state is RunState.FINISHED for run in runs)

    @pytest.mark.parametrize(
        "answer", [ModelUnavailableError("Down."), says(" "), ContextTooLongError("Too long.")]
    )
    async def test_without_a_summary_the_run_goes_on_with_what_fits(
        self, answer: ModelReply | Exception
    ) -> None:
        conversation = Conversation(SmallModel(3000))
        conversation.model.notes = [answer] * 100
        for number in range(8):
            run = await conversation.say(f"{number} {LONG}")
            assert run.state is RunState.FINISHED

        assert await remembered(conversation) is None
        assert conversation.model.summaries
        assert 3 <= len(shown(conversation.model.questions[-1])) < 8

    async def test_one_that_takes_too_long_is_given_up(self) -> None:
        class Slow(SmallModel):
            async def complete(self, request: ModelRequest) -> ModelReply:
                if is_summary(request):
                    self.requests.append(request)
                    await asyncio.Event().wait()
                return await super().complete(request)

        limits = RunLimits(max_duration=timedelta(seconds=0.4))
        conversation = Conversation(Slow(3000), limits=limits)
        runs = [await conversation.say(f"{number} {LONG}") for number in range(6)]

        assert all(run.stop_reason is StopReason.END_TURN for run in runs)
        assert await remembered(conversation) is None
        assert conversation.model.summaries

    async def test_an_unknown_context_is_found_out(self) -> None:
        conversation = Conversation(SmallModel(2500, told=False))
        for number in range(14):
            run = await conversation.say(f"{number} {LONG}")
            assert run.state is RunState.FINISHED

        assert conversation.model.refused
        assert await remembered(conversation) is not None

    async def test_an_old_session_is_summarised_whole(self) -> None:
        """Much longer than what is read for one run."""
        conversation = Conversation(SmallModel(3000), window=Window())
        for number in range(120):
            await conversation.say(f"{number} {LONG[:400]}")
        session = await conversation.session()
        await conversation.stores.agents.update(
            ALICE, session.agent_id, lambda settings: replace(settings, window=COMPACTION)
        )

        await conversation.say("What was it?")

        records = "".join(each.messages[1].text for each in conversation.model.summaries)
        summary = await remembered(conversation)
        assert summary is not None
        assert summary.messages > 200
        assert all(f"[user] {n} x" in records for n in range(summary.messages // 2))

    async def test_who_is_overtaken_goes_on_from_what_there_is(self) -> None:
        other = Summary("By another.", "0", through_turn=5, messages=6, model="m")

        class Overtaken(SmallModel):
            async def complete(self, request: ModelRequest) -> ModelReply:
                if is_summary(request) and not self.summaries:
                    session = await conversation.session()
                    put = conversation.stores.memories.put
                    assert await put(ALICE, session.id, other, revision=0) is not None
                return await super().complete(request)

        conversation = Conversation(Overtaken(3000, usage=True))
        spent = Usage()
        while not conversation.model.summaries:
            run = await conversation.say(f"{len(conversation.model.questions)} {LONG}")
            assert run.state is RunState.FINISHED
            spent += run.usage

        assert await remembered(conversation) == other
        assert spent.input_tokens == sum(map(cost, conversation.model.requests))
        assert "By another." in conversation.model.questions[-1].messages[2].text

    async def test_after_a_clear_nothing_of_before_is_shown_or_summarised(self) -> None:
        conversation = Conversation(SmallModel(3000))
        for number in range(8):
            await conversation.say(f"secret {number} {LONG}")
        session = await conversation.session()
        await conversation.stores.memories.clear(ALICE, session.id)
        asked = len(conversation.model.requests)
        for number in range(8):
            await conversation.say(f"new {number} {LONG}")

        told = [each.text for r in conversation.model.requests[asked:] for each in r.messages]
        assert not any("secret" in text for text in told)
        summary = await remembered(conversation)
        assert summary is not None
        assert summary.question.startswith("new 0")


class TestLearning:
    async def test_a_model_that_counts_more_than_is_estimated_is_given_less(self) -> None:
        """Within the run; it is told by what the model's server reports."""
        tool = PlainTool(gives=lambda arguments: ToolResult("y" * 12_000))
        conversation = Conversation(SmallModel(6000), window=Window(), tools=[tool])
        wanted = [call("a"), call("b", arguments='{"what": "1"}')]
        conversation.model.script = [
            calls(wanted[0]),
            calls(wanted[1], usage=Usage(5900, 1)),
        ]

        await conversation.say("Go.")

        second, third = conversation.model.questions[1:]
        assert cost(third) < cost(second) <= 4500


class TestHooks:
    async def test_what_is_masked_in_questions_is_masked_in_summaries(self) -> None:
        conversation = Conversation(SmallModel(3000), hooks=[PiiMasking])
        for number in range(8):
            await conversation.say(f"{number} ann@example.com {LONG}")

        assert conversation.model.summaries
        assert "ann@example.com" not in repr(conversation.model.requests)

    async def test_a_hook_that_stands_in_the_way_leaves_the_run_without_a_summary(self) -> None:
        class Jumping(Hook[HookConfig]):
            name = "jumping"
            description = "Answers itself where notes are asked for."
            priority = 0

            async def before_model(
                self, request: ModelRequest, run: HookRun
            ) -> ModelRequest | Jump | None:
                return End("No notes.") if is_summary(request) else None

        conversation = Conversation(SmallModel(3000), hooks=[Jumping])
        for number in range(8):
            run = await conversation.say(f"{number} {LONG}")
            assert run.stop_reason is StopReason.END_TURN

        assert await remembered(conversation) is None
        assert conversation.model.summaries == []
