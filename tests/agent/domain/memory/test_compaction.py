from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from services.agent.domain.chat import ModelReply, ModelRequest
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelUnavailableError,
)
from services.agent.domain.memory.compaction import (
    Compaction,
    OutOfTokensError,
    OvertakenError,
)
from services.agent.domain.memory.models import Memory, Said, Summary
from services.agent.domain.memory.summary import request_tokens
from services.agent.domain.models import ModelOptions
from services.agent.domain.run_models import Usage
from tests.agent.domain.memory.talk import Pages, talk
from tests.agent.turns import ScriptedModel, says


def compaction(
    model: ScriptedModel,
    memory: Memory | None = None,
    *,
    request_tokens: int = 8000,
    tokens_left: int | None = None,
) -> Compaction:
    return Compaction(
        memory or Memory(),
        model=model,
        options=ModelOptions(),
        summary_tokens=100,
        request_tokens=request_tokens,
        tokens_left=tokens_left,
    )


@dataclass
class Shelf:
    """Keeps summaries as a store does."""

    memory: Memory = field(default_factory=Memory)
    kept: list[tuple[Summary, Usage]] = field(default_factory=list)
    refuses: bool = False

    async def put(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        if self.refuses or revision != self.memory.revision:
            return None
        self.kept.append((summary, usage))
        self.memory = replace(self.memory, revision=revision + 1, summary=summary)
        return self.memory


def asked(request: ModelRequest) -> str:
    return request.messages[1].text


THREE: Sequence[Said] = talk(("one", "1"), ("two", "found", "2"), ("three", "3"))


class TestRun:
    async def test_the_older_part_becomes_one_summary(self) -> None:
        model, shelf = ScriptedModel(says("All three.", Usage(50, 7))), Shelf()
        work = compaction(model)

        await work.run(Pages(THREE), shelf.put)

        [(summary, usage)] = shelf.kept
        assert summary == Summary("All three.", "one", through_turn=6, messages=7, model="m")
        assert usage == work.done.usage == Usage(50, 7)
        assert (work.done.messages, work.owed) == (7, Usage())
        assert "[user] one\n[assistant] 1\n[user] two\n[look] found" in asked(model.requests[0])
        assert work.memory == shelf.memory

    async def test_nothing_to_summarise_asks_nobody(self) -> None:
        model, shelf = ScriptedModel(), Shelf()

        await compaction(model).run(Pages([]), shelf.put)

        assert model.requests == [] == shelf.kept

    async def test_a_summary_takes_in_the_one_before_and_keeps_its_first_question(self) -> None:
        before = Summary("Earlier notes.", "zero", through_turn=2, messages=4, model="old")
        memory = Memory(3, 0, before)
        model, shelf, pages = ScriptedModel(says("More.")), Shelf(memory), Pages(THREE)
        work = compaction(model, memory)

        await work.run(pages, shelf.put)

        assert pages.asked[0] == memory.after
        assert "<notes>\nEarlier notes.\n</notes>" in asked(model.requests[0])
        assert "one" not in asked(model.requests[0])
        [(summary, _)] = shelf.kept
        assert (summary.question, summary.messages, summary.model) == ("zero", 9, "m")

    async def test_what_is_forgotten_is_not_summarised(self) -> None:
        memory = Memory(1, cleared_turn=3)
        model, shelf = ScriptedModel(says("Three.")), Shelf(memory)

        await compaction(model, memory).run(Pages(THREE), shelf.put)

        assert "found" not in asked(model.requests[0])
        assert shelf.kept[0][0].question == "three"

    async def test_what_does_not_fit_the_model_goes_in_portions(self) -> None:
        said = talk(*((f"question {n}", "x" * 1200) for n in range(10)))
        model, shelf = ScriptedModel(otherwise=lambda n: says(f"notes {n}")), Shelf()
        work = compaction(model, request_tokens=1500)

        await work.run(Pages(said, size=7), shelf.put)

        assert 3 <= len(shelf.kept) < 10
        through = [summary.through_turn for summary, _ in shelf.kept]
        assert through == sorted(set(through))
        assert (through[-1], shelf.kept[-1][0].messages) == (19, 20)
        assert all(request_tokens(request) <= 1500 for request in model.requests)
        for number, request in enumerate(model.requests[1:], start=1):
            assert f"<notes>\nnotes {number}\n</notes>" in asked(request)
        record = "".join(map(asked, model.requests))
        assert [record.count(f"question {n}\n") for n in range(10)] == [1] * 10

    async def test_one_turn_larger_than_the_model_is_kept_only_when_it_is_whole(self) -> None:
        said = talk(("go", *(f"result {n} " + "y" * 4000 for n in range(40)), "done"))
        model, shelf = ScriptedModel(otherwise=lambda n: says(f"notes {n}")), Shelf()
        work = compaction(model, request_tokens=1200)

        await work.run(Pages(said, size=5), shelf.put)

        [(summary, _)] = shelf.kept
        assert len(model.requests) >= 3
        assert (summary.through_turn, summary.messages) == (1, 42)
        record = "".join(map(asked, model.requests))
        assert all(f"result {n} " in record for n in range(40))


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (ModelUnavailableError("Down."), ModelUnavailableError),
            (says("  "), EmptyAnswerError),
            (ModelReply("", usage=None), EmptyAnswerError),
        ],
    )
    async def test_a_failed_summary_changes_nothing(
        self, answer: ModelReply | Exception, error: type[Exception]
    ) -> None:
        shelf = Shelf()
        work = compaction(ScriptedModel(answer))

        with pytest.raises(error):
            await work.run(Pages(THREE), shelf.put)

        assert shelf.kept == []
        assert (work.memory, work.done.messages) == (Memory(), 0)

    async def test_an_empty_one_is_still_paid_for(self) -> None:
        work = compaction(ScriptedModel(says("", Usage(40, 2))))

        with pytest.raises(EmptyAnswerError):
            await work.run(Pages(THREE), Shelf().put)

        assert work.owed == Usage(40, 2)

    async def test_what_was_kept_before_a_failure_stays(self) -> None:
        said = talk(*((f"question {n}", "x" * 1200) for n in range(10)))
        model, shelf = ScriptedModel(says("first"), ModelUnavailableError("Down.")), Shelf()
        work = compaction(model, request_tokens=1500)

        with pytest.raises(ModelUnavailableError):
            await work.run(Pages(said), shelf.put)

        [(summary, _)] = shelf.kept
        assert (summary.text, work.memory.summary) == ("first", summary)

    async def test_who_is_overtaken_stops(self) -> None:
        work = compaction(ScriptedModel(says("Late.", Usage(9, 1))))

        with pytest.raises(OvertakenError):
            await work.run(Pages(THREE), Shelf(refuses=True).put)

        assert work.overtaken
        assert (work.done.messages, work.done.usage, work.owed) == (0, Usage(9, 1), Usage())

    async def test_no_more_tokens_are_spent_than_are_left(self) -> None:
        model = ScriptedModel(otherwise=lambda n: says(f"notes {n}", Usage(1400, 50)))
        said = talk(*((f"question {n}", "x" * 1200) for n in range(20)))
        work, shelf = compaction(model, request_tokens=1500, tokens_left=4000), Shelf()

        with pytest.raises(OutOfTokensError):
            await work.run(Pages(said), shelf.put)

        assert 1 <= len(model.requests) <= 2
        assert work.done.usage.total + work.owed.total <= 4000

    async def test_portions_shrink_where_the_model_reads_less_than_was_said(self) -> None:
        said = talk(*((f"question {n}", "x" * 1200) for n in range(10)))

        async def small(request: ModelRequest) -> ModelReply:
            if request_tokens(request) > 1000:
                raise ContextTooLongError("Too long.")
            return says("notes")

        model, shelf = ScriptedModel(*[small] * 40), Shelf()
        work = compaction(model, request_tokens=6000)

        await work.run(Pages(said), shelf.put)

        assert shelf.kept[-1][0].messages == 20
        assert work.refused
        assert work.request_tokens <= 1500

    async def test_a_model_that_finds_everything_too_long_is_given_up(self) -> None:
        model = ScriptedModel(otherwise=lambda n: ContextTooLongError("Too long."))

        with pytest.raises(ContextTooLongError):
            await compaction(model).run(Pages(THREE), Shelf().put)

        assert len(model.requests) < 10
