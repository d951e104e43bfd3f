from dataclasses import replace

import pytest

from services.agent.domain.errors import (
    AgentDeletedError,
    CompactionOffError,
    ModelUnavailableError,
    UnknownModelError,
)
from services.agent.domain.memory.memories import Memories
from services.agent.domain.models import HookSetting, Window, WindowStrategy
from services.agent.domain.tools.registry import Tools
from services.common.errors import AbortedError, NotFoundError
from tests.agent.conversation import Conversation, SmallModel, is_summary
from tests.agent.turns import Models, says
from tests.contracts.agent_stores import ALICE, BOB

LONG = "x" * 2000
FEW = Window(strategy=WindowStrategy.COMPACTION, keep_messages=4)


def memories(conversation: Conversation) -> Memories:
    stores = conversation.stores
    return Memories(
        stores.memories,
        agents=stores.agents,
        sessions=stores.sessions,
        models=Models(conversation.model),
        tools=Tools(conversation.tools),
    )


async def talked(turns: int, *, window: Window = FEW, text: str = "") -> Conversation:
    conversation = Conversation(SmallModel(8000, usage=True), window=window)
    for number in range(turns):
        await conversation.say(f"question {number}{text}")
    return conversation


class TestGet:
    @pytest.mark.parametrize(
        ("window", "messages"),
        [
            (Window(), 20),
            (Window(max_messages=5), 4),
            (Window(max_messages=0), 0),
            (Window(strategy=WindowStrategy.TOKEN_BUDGET), 30),
            (FEW, 30),
        ],
    )
    async def test_it_is_what_the_next_question_would_be_shown_with(
        self, window: Window, messages: int
    ) -> None:
        conversation = await talked(15, window=window)
        session = await conversation.session()

        shown = await memories(conversation).get(ALICE, session.id)

        said = await conversation.said()
        assert list(shown.messages) == said[len(said) - messages :]
        assert shown.memory.summary is None
        assert (shown.tokens > 0) == (messages > 0)

    async def test_a_summary_stands_for_what_is_older(self) -> None:
        conversation = await talked(
            20, window=Window(strategy=WindowStrategy.COMPACTION), text=LONG
        )
        session = await conversation.session()

        shown = await memories(conversation).get(ALICE, session.id)
        await conversation.say("next")

        summary = shown.memory.summary
        assert summary is not None
        assert shown.messages[0].sequence > summary.through_turn
        last = [each.text for each in conversation.model.questions[-1].messages]
        assert summary.text in last[2]
        assert last[3:-1] == [each.text for each in shown.messages]

    async def test_after_a_clear_there_is_nothing(self) -> None:
        conversation = await talked(3)
        session = await conversation.session()

        cleared = await memories(conversation).clear(ALICE, session.id)
        shown = await memories(conversation).get(ALICE, session.id)

        assert (shown.messages, shown.tokens) == ((), 0)
        assert shown.memory.cleared_turn == cleared.cleared_turn == 5
        assert len(await conversation.said()) == 6

    async def test_what_cannot_be_told_is_refused(self) -> None:
        conversation = await talked(1)
        session, shown = await conversation.session(), memories(conversation)
        with pytest.raises(NotFoundError):
            await shown.get(BOB, session.id)

        await conversation.stores.agents.update(
            ALICE, session.agent_id, lambda settings: replace(settings, model="gone")
        )
        with pytest.raises(UnknownModelError):
            await shown.get(ALICE, session.id)

        await conversation.stores.agents.delete(ALICE, session.agent_id)
        with pytest.raises(AgentDeletedError):
            await shown.get(ALICE, session.id)


class TestCompact:
    async def test_all_but_the_newest_is_summarised_at_once(self) -> None:
        conversation = await talked(10)
        session = await conversation.session()

        summary, done = await memories(conversation).compact(ALICE, session.id)

        assert summary is not None
        assert (summary.text, summary.question) == ("notes 1", "question 0")
        assert (summary.through_turn, summary.messages, done.messages) == (15, 16, 16)
        assert done.usage.total > 0
        assert done.tokens_before > 16
        await conversation.say("next")
        texts = [each.text for each in conversation.model.questions[-1].messages]
        assert texts[1] == "question 0"
        assert texts[3:] == ["question 8", "to question 8", "question 9", "to question 9", "next"]

    async def test_a_repeat_summarises_nothing_again(self) -> None:
        conversation = await talked(10)
        session = await conversation.session()
        first, _ = await memories(conversation).compact(ALICE, session.id)

        again, done = await memories(conversation).compact(ALICE, session.id)

        assert (again, done.messages) == (first, 0)
        assert len(conversation.model.summaries) == 1

    async def test_where_there_is_nothing_old_there_is_no_summary(self) -> None:
        conversation = await talked(2)
        session = await conversation.session()

        summary, done = await memories(conversation).compact(ALICE, session.id)

        assert (summary, done.messages, conversation.model.summaries) == (None, 0, [])

    async def test_turns_that_have_not_ended_are_left_alone(self) -> None:
        conversation = await talked(4, window=replace(FEW, keep_messages=0))
        session = await conversation.session()
        await conversation.stores.runs.start(ALICE, session.id, "waiting")

        summary, _ = await memories(conversation).compact(ALICE, session.id)

        assert summary is not None
        assert (summary.through_turn, summary.messages) == (7, 8)

    async def test_an_agent_without_summaries_is_told(self) -> None:
        conversation = await talked(10, window=Window())
        session = await conversation.session()

        with pytest.raises(CompactionOffError) as refused:
            await memories(conversation).compact(ALICE, session.id)

        assert refused.value.metadata == {"agent_id": session.agent_id}

    async def test_an_agent_with_hooks_is_summarised_within_its_runs_alone(self) -> None:
        conversation = await talked(10)
        session = await conversation.session()
        await conversation.stores.agents.update(
            ALICE,
            session.agent_id,
            lambda settings: replace(settings, hooks=(HookSetting("pii_masking"),)),
        )

        with pytest.raises(CompactionOffError, match="hooks"):
            await memories(conversation).compact(ALICE, session.id)

        assert conversation.model.summaries == []

    async def test_a_failure_is_told_and_changes_nothing(self) -> None:
        conversation = await talked(10)
        session = await conversation.session()
        conversation.model.notes = [ModelUnavailableError("Down.")]

        with pytest.raises(ModelUnavailableError):
            await memories(conversation).compact(ALICE, session.id)

        shown = await memories(conversation).get(ALICE, session.id)
        assert (len(shown.messages), shown.memory.summary) == (20, None)

    async def test_one_that_is_cleared_meanwhile_is_given_up(self) -> None:
        conversation = await talked(10)
        session = await conversation.session()
        work, model = memories(conversation), conversation.model
        complete = model.complete

        async def clearing(request: object) -> object:
            if is_summary(request):  # type: ignore[arg-type]  # it is one
                await work.clear(ALICE, session.id)
            return await complete(request)  # type: ignore[arg-type]  # as above

        model.complete = clearing  # type: ignore[method-assign,assignment]  # amid the call
        model.notes = [says("Too late.")]

        with pytest.raises(AbortedError):
            await work.compact(ALICE, session.id)

        assert (await work.get(ALICE, session.id)).memory.summary is None
