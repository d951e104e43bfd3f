"""Every implementation of chat memory keeps it, guards it and reads messages in the same way."""

from dataclasses import replace

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.memory.models import LAST, Memory, Place, Summary
from services.agent.domain.models import AgentSettings, Session, Window, WindowStrategy
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage, WhenBusy
from services.common.errors import NotFoundError
from services.common.identity import Identity
from tests.contracts.agent_stores import (
    ADMIN,
    ALICE,
    AT_ONCE,
    BOB,
    STRANGER,
    Stores,
    answer,
    asking,
    call,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
FAILED = Ending(RunState.ERROR, StopReason.MODEL_ERROR, RunError("MODEL_REJECTED", "No."))
START, END = Place(0, LAST), Place(LAST, 0)
MANY = 10**9


def summary(through: int, text: str = "Notes.") -> Summary:
    return Summary(text, "question 0", through_turn=through, messages=2, model="m")


async def said(stores: Stores, turns: int, *, settings: AgentSettings | None = None) -> Session:
    """A session of so many answered questions: sequences 1 and 2, 3 and 4, …"""
    session = await stores.session(settings=settings or AgentSettings("Helper"))
    for number in range(turns):
        await say(stores, session, f"question {number}")
    return session


async def say(stores: Stores, session: Session, text: str, *, ending: Ending = ENDED) -> Run:
    await stores.runs.start(ALICE, session.id, text)
    claim = await stores.claimed()
    journal = stores.queue.journal(claim)
    await journal.finish(ending, [answer(f"to {text}")] if ending == ENDED else [])
    return claim.run


async def texts(
    stores: Stores,
    session: Session,
    *,
    newest_first: bool = False,
    after: Place = START,
    before: Place = END,
) -> list[str]:
    page = await stores.memories.page(
        ALICE,
        session.id,
        after=after,
        before=before,
        newest_first=newest_first,
        most=100,
        max_bytes=MANY,
    )
    return [each.message.text for each in page.items]


class TestPut:
    async def test_nothing_is_remembered_at_first(self, stores: Stores) -> None:
        session = await said(stores, 1)

        assert Memory() == await stores.memories.get(ALICE, session.id)

    async def test_a_summary_is_kept(self, stores: Stores) -> None:
        session = await said(stores, 2)

        kept = await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        assert Memory(1, 0, summary(1)) == kept == await stores.memories.get(ALICE, session.id)

    async def test_it_only_ever_grows(self, stores: Stores) -> None:
        session = await said(stores, 3)
        put = stores.memories.put
        await put(ALICE, session.id, summary(3), revision=0)

        for through in (1, 3):
            assert await put(ALICE, session.id, summary(through), revision=1) is None
        grown = await put(ALICE, session.id, summary(5), revision=1)

        assert Memory(2, 0, summary(5)) == grown

    async def test_of_two_made_from_the_same_memory_one_is_kept(self, stores: Stores) -> None:
        session = await said(stores, 3)
        put = stores.memories.put

        first = await put(ALICE, session.id, summary(1, "first"), revision=0)
        second = await put(ALICE, session.id, summary(3, "second"), revision=0)

        assert (first, second) == (Memory(1, 0, summary(1, "first")), None)
        assert first == await stores.memories.get(ALICE, session.id)

    async def test_messages_stay_as_they_are(self, stores: Stores) -> None:
        session = await said(stores, 2)
        before = await stores.said(session)

        await stores.memories.put(ALICE, session.id, summary(3), revision=0)

        assert before == await stores.said(session)

    @pytest.mark.parametrize("identity", [BOB, ADMIN, STRANGER])
    async def test_it_is_the_users_own(self, stores: Stores, identity: Identity) -> None:
        session = await said(stores, 1)
        await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        assert Memory() == await stores.memories.get(identity, session.id)
        assert await stores.memories.put(identity, session.id, summary(3), revision=1) is None
        with pytest.raises(NotFoundError):
            await stores.memories.clear(identity, session.id)
        page = await stores.memories.page(
            identity, session.id, after=START, before=END, newest_first=True, most=9, max_bytes=MANY
        )
        assert page.items == []

    async def test_it_goes_with_its_session(self, stores: Stores) -> None:
        session = await said(stores, 1)
        await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        await stores.sessions.delete(ALICE, session.id)

        assert Memory() == await stores.memories.get(ALICE, session.id)
        assert await stores.memories.put(ALICE, session.id, summary(3), revision=1) is None


class TestRemember:
    """What the worker that holds a run writes."""

    async def test_the_summary_and_what_it_cost_are_written_together(self, stores: Stores) -> None:
        session = await said(stores, 2)
        await stores.runs.start(ALICE, session.id, "next")
        claim = await stores.claimed()

        kept = await stores.queue.journal(claim).remember(
            summary(1), revision=0, usage=Usage(70, 8)
        )

        assert Memory(1, 0, summary(1)) == kept == await stores.memories.get(ALICE, session.id)
        assert Usage(70, 8) == (await stores.runs.get(ALICE, claim.run.id)).usage

    async def test_one_that_is_overtaken_is_paid_for_all_the_same(self, stores: Stores) -> None:
        session = await said(stores, 2)
        await stores.runs.start(ALICE, session.id, "next")
        claim = await stores.claimed()
        await stores.memories.put(ALICE, session.id, summary(3, "first"), revision=0)

        kept = await stores.queue.journal(claim).remember(
            summary(1), revision=0, usage=Usage(70, 8)
        )

        assert kept is None
        assert Memory(1, 0, summary(3, "first")) == await stores.memories.get(ALICE, session.id)
        assert Usage(70, 8) == (await stores.runs.get(ALICE, claim.run.id)).usage

    async def test_who_lost_the_run_remembers_nothing(self, stores: Stores) -> None:
        session = await said(stores, 2)
        await stores.runs.start(ALICE, session.id, "next")
        lost = await stores.claimed(lease=AT_ONCE)
        await stores.claimed()

        with pytest.raises(FencedError):
            await stores.queue.journal(lost).remember(summary(1), revision=0, usage=Usage(70, 8))

        assert Memory() == await stores.memories.get(ALICE, session.id)
        assert Usage() == (await stores.runs.get(ALICE, lost.run.id)).usage

    async def test_a_run_that_is_to_stop_remembers_nothing(self, stores: Stores) -> None:
        session = await said(stores, 2)
        await stores.runs.start(ALICE, session.id, "next")
        claim = await stores.claimed()
        await stores.runs.cancel(ALICE, claim.run.id)

        with pytest.raises(FencedError):
            await stores.queue.journal(claim).remember(summary(1), revision=0, usage=Usage())

        assert Memory() == await stores.memories.get(ALICE, session.id)


class TestClear:
    async def test_all_turns_there_are_are_forgotten_with_the_summary(self, stores: Stores) -> None:
        session = await said(stores, 3)
        await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        cleared = await stores.memories.clear(ALICE, session.id)

        assert Memory(2, cleared_turn=5) == cleared == await stores.memories.get(ALICE, session.id)
        assert len(await stores.said(session)) == 6

    async def test_it_can_be_repeated(self, stores: Stores) -> None:
        session = await said(stores, 1)
        empty = await stores.session()

        first = await stores.memories.clear(ALICE, session.id)
        second = await stores.memories.clear(ALICE, session.id)

        assert first.cleared_turn == second.cleared_turn == 1
        assert (await stores.memories.clear(ALICE, empty.id)).cleared_turn == 0

    async def test_a_summary_that_was_under_way_is_not_kept(self, stores: Stores) -> None:
        session = await said(stores, 3)
        await stores.memories.clear(ALICE, session.id)

        assert await stores.memories.put(ALICE, session.id, summary(3), revision=0) is None

    async def test_nothing_forgotten_comes_back_in_a_summary(self, stores: Stores) -> None:
        session = await said(stores, 2)
        cleared = await stores.memories.clear(ALICE, session.id)
        put = stores.memories.put

        assert await put(ALICE, session.id, summary(3), revision=cleared.revision) is None
        await say(stores, session, "question 2")
        kept = await put(ALICE, session.id, summary(5), revision=cleared.revision)

        assert Memory(2, 3, summary(5)) == kept

    async def test_later_runs_are_shown_nothing_of_it(self, stores: Stores) -> None:
        session = await said(stores, 2)
        await stores.memories.clear(ALICE, session.id)
        await say(stores, session, "after")
        await stores.runs.start(ALICE, session.id, "now")

        context = await stores.queue.context(await stores.claimed())

        assert [each.text for each in context.history] == ["after", "to after"]

    async def test_a_message_that_waits_meanwhile_is_answered_without_a_past(
        self, stores: Stores
    ) -> None:
        session = await said(stores, 2)
        await stores.runs.start(ALICE, session.id, "waiting")
        await stores.memories.clear(ALICE, session.id)

        context = await stores.queue.context(await stores.claimed())

        assert (
            context.history,
            [each.text for each in context.turn],
        ) == ([], ["waiting"])


class TestRetry:
    """A run that is put back in line changes what was said."""

    async def test_a_summary_that_covers_it_is_dropped(self, stores: Stores) -> None:
        session = await said(stores, 1)
        failed = await say(stores, session, "broken", ending=FAILED)
        await say(stores, session, "later")
        await stores.memories.put(ALICE, session.id, summary(5), revision=0)

        await stores.runs.retry(ALICE, failed.id)

        assert (await stores.memories.get(ALICE, session.id)).summary is None

    async def test_one_of_turns_before_stays(self, stores: Stores) -> None:
        session = await said(stores, 1)
        failed = await say(stores, session, "broken", ending=FAILED)
        await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        await stores.runs.retry(ALICE, failed.id)

        assert summary(1) == (await stores.memories.get(ALICE, session.id)).summary

    @pytest.mark.parametrize("before", [0, 1])
    async def test_one_that_is_under_way_is_not_kept(self, stores: Stores, before: int) -> None:
        session = await said(stores, 2)
        failed = await say(stores, session, "broken", ending=FAILED)
        await say(stores, session, "later")
        if before:
            await stores.memories.put(ALICE, session.id, summary(1), revision=0)

        await stores.runs.retry(ALICE, failed.id)

        put = stores.memories.put
        assert await put(ALICE, session.id, summary(7), revision=before) is None


class TestPage:
    async def test_both_ways_in_the_order_of_turns(self, stores: Stores) -> None:
        session = await stores.session()
        await stores.runs.start(ALICE, session.id, "one")
        claim = await stores.claimed()
        await stores.runs.start(ALICE, session.id, "two")
        asked = call("a")
        journal = stores.queue.journal(claim)
        await journal.append_assistant(asking(asked), usage=Usage())
        await journal.append_tool_results([result_of(asked)])
        await journal.finish(ENDED, [answer("first")])

        expected = ["one", "", "seen", "first", "two"]
        assert expected == await texts(stores, session)
        assert expected[::-1] == await texts(stores, session, newest_first=True)

    async def test_between_two_places(self, stores: Stores) -> None:
        session = await said(stores, 4)

        expected = ["question 1", "to question 1", "question 2", "to question 2"]
        assert expected == await texts(stores, session, after=Place(1, LAST), before=Place(7, 0))
        assert await texts(stores, session, after=Place(1, 1), before=Place(3, 3)) == [
            "to question 0"
        ]

    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_page_by_page_nothing_is_left_out(
        self, stores: Stores, newest_first: bool
    ) -> None:
        session = await said(stores, 4)
        found: list[int] = []
        after, before = START, END
        while True:
            page = await stores.memories.page(
                ALICE,
                session.id,
                after=after,
                before=before,
                newest_first=newest_first,
                most=3,
                max_bytes=MANY,
            )
            found += [each.message.sequence for each in page.items]
            assert [each.place.turn for each in page.items] == [
                each.message.sequence - (each.message.sequence + 1) % 2 for each in page.items
            ]
            if not page.more:
                break
            last = page.items[-1].place
            after, before = (after, last) if newest_first else (last, before)

        assert list(range(8, 0, -1) if newest_first else range(1, 9)) == found

    async def test_bytes_bound_it_but_for_the_first(self, stores: Stores) -> None:
        session = await said(stores, 2)

        page = await stores.memories.page(
            ALICE, session.id, after=START, before=END, newest_first=False, most=9, max_bytes=1
        )

        assert (len(page.items), page.more) == (1, True)

    async def test_what_was_rolled_back_is_not_there(self, stores: Stores) -> None:
        session = await said(stores, 1)
        await stores.runs.start(ALICE, session.id, "dropped")
        claim = await stores.claimed()
        await stores.runs.start(ALICE, session.id, "instead", when_busy=WhenBusy.ROLLBACK)
        stopped = Ending(RunState.CANCELLED, StopReason.INTERRUPTED)
        await stores.queue.journal(claim).finish(stopped)

        assert await texts(stores, session) == ["question 0", "to question 0", "instead"]


class TestOpenTurn:
    async def test_it_is_that_of_the_first_run_that_has_not_ended(self, stores: Stores) -> None:
        session = await said(stores, 2)
        assert await stores.memories.open_turn(ALICE, session.id) == LAST

        await stores.runs.start(ALICE, session.id, "three")
        await stores.runs.start(ALICE, session.id, "four")

        assert await stores.memories.open_turn(ALICE, session.id) == 5
        assert await stores.memories.open_turn(BOB, session.id) == LAST


class TestContext:
    @pytest.mark.parametrize("strategy", [WindowStrategy.TOKEN_BUDGET, WindowStrategy.COMPACTION])
    async def test_with_other_strategies_the_past_is_read_later(
        self, stores: Stores, strategy: WindowStrategy
    ) -> None:
        settings = replace(AgentSettings("Helper"), window=Window(strategy=strategy))
        session = await said(stores, 2, settings=settings)
        await stores.runs.start(ALICE, session.id, "now")

        context = await stores.queue.context(await stores.claimed())

        assert (context.history, [each.text for each in context.turn]) == ([], ["now"])
