"""Every implementation of the queue of runs hands them out, and fences them, in the same way."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.messages import Citation, Draft, Role
from services.agent.domain.models import (
    AgentSettings,
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    ToolCallId,
    Window,
)
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Caution, Standing
from services.agent.domain.run_models import Cost, Offered, RunError, RunState, StopReason, Usage
from services.common.identity import Identity
from services.common.ids import new_id
from tests.contracts.agent_stores import (
    ADMIN,
    ALICE,
    AT_ONCE,
    BOB,
    LEASE,
    PRIVATE,
    SHARED,
    Stores,
    answer,
    asking,
    call,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
CANCELLED = Ending(RunState.CANCELLED, StopReason.CANCELLED)
FAILED = Ending(RunState.ERROR, StopReason.MODEL_ERROR, RunError("MODEL_REJECTED", "No."))
CITATION = Citation(
    label="1",
    knowledge_base_id=KnowledgeBaseId(new_id()),
    document_id=DocumentId(new_id()),
    chunk_id=ChunkId(new_id()),
    document_name="Doc",
    heading_path=("A",),
    start_line=1,
    end_line=2,
    score=0.5,
)

Write = Callable[[RunJournal], Awaitable[object]]
WRITES: dict[str, Write] = {
    "set_state": lambda journal: journal.set_state(RunState.THINKING),
    "append_assistant": lambda journal: journal.append_assistant(asking(call("z")), usage=Usage()),
    "start_tool_calls": lambda journal: journal.start_tool_calls([ToolCallId("z")]),
    "append_tool_results": lambda journal: journal.append_tool_results([result_of(call("z"))]),
    "finish": lambda journal: journal.finish(ENDED, [answer()]),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


class TestClaims:
    async def test_a_waiting_run_is_taken_once(self, stores: Stores) -> None:
        run = await stores.started()

        claim = await stores.claimed()

        assert (run.id, 1, 0) == (claim.run.id, claim.epoch, claim.crashes)
        assert claim.run == await stores.runs.get(ALICE, run.id)
        assert claim.run.state is RunState.PLANNING
        assert claim.run.start_time is not None
        assert await stores.queue.claim(lease=LEASE, most=1) == []

    async def test_no_more_are_taken_than_asked_for(self, stores: Stores) -> None:
        started = [await stores.started() for _ in range(5)]

        first = await stores.queue.claim(lease=LEASE, most=3)
        rest = await stores.queue.claim(lease=LEASE, most=3)

        assert {run.id for run in started[:3]} == {claim.run.id for claim in first}
        assert {run.id for run in started[3:]} == {claim.run.id for claim in rest}

    async def test_a_sessions_runs_are_given_out_one_after_the_other(self, stores: Stores) -> None:
        session = await stores.session()
        runs = [(await stores.runs.start(ALICE, session.id, "Hello"))[0] for _ in range(3)]
        worked = []
        for _ in runs:
            [claim] = await stores.queue.claim(lease=LEASE, most=5)
            worked.append(claim.run.id)
            await stores.queue.journal(claim).finish(ENDED, [answer()])

        assert [run.id for run in runs] == worked
        assert await stores.queue.claim(lease=LEASE, most=5) == []

    async def test_a_run_whose_worker_was_lost_is_taken_again(self, stores: Stores) -> None:
        run = await stores.started()
        first = await stores.claimed(lease=AT_ONCE)

        again = await stores.claimed()

        assert (run.id, 2, 1) == (again.run.id, again.epoch, again.crashes)
        assert first.run.start_time == again.run.start_time

    async def test_lost_runs_come_before_waiting_ones(self, stores: Stores) -> None:
        lost = await stores.started()
        await stores.claimed(lease=AT_ONCE)
        waiting = await stores.started()

        assert lost.id == (await stores.claimed()).run.id
        assert waiting.id == (await stores.claimed()).run.id

    async def test_a_lost_run_keeps_those_behind_it_waiting(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.runs.start(ALICE, run.session_id, "More")
        await stores.claimed(lease=AT_ONCE)

        [claim] = await stores.queue.claim(lease=LEASE, most=5)

        assert run.id == claim.run.id

    async def test_a_run_handed_back_is_taken_at_once_and_is_no_crash(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.runs.start(ALICE, run.session_id, "More")
        claim = await stores.claimed()

        await stores.queue.hand_back(claim)

        assert (await stores.runs.get(ALICE, run.id)).state is RunState.IDLE
        again = await stores.claimed()
        assert (run.id, 2, 0) == (again.run.id, again.epoch, again.crashes)

    async def test_only_the_holder_hands_back(self, stores: Stores) -> None:
        await stores.started()
        stale = await stores.claimed(lease=AT_ONCE)
        claim = await stores.claimed()

        await stores.queue.hand_back(stale)

        assert claim.run == await stores.runs.get(ALICE, claim.run.id)

    async def test_suspected_runs_are_taken_a_few_at_a_time(self, stores: Stores) -> None:
        lost = {(await stores.started()).id for _ in range(3)}
        for _ in range(2):
            await stores.queue.claim(lease=AT_ONCE, most=3)
        trusted = await stores.started()

        none = await stores.queue.claim(lease=LEASE, most=9, caution=Caution(2, most=0))
        two = await stores.queue.claim(lease=LEASE, most=9, caution=Caution(2, most=2))
        rest = await stores.queue.claim(lease=LEASE, most=9, caution=Caution(2, most=2))

        assert [trusted.id] == [claim.run.id for claim in none]
        assert (len(two), len(rest)) == (2, 1)
        assert lost == {claim.run.id for claim in [*two, *rest]}

    async def test_runs_that_lost_fewer_workers_are_not_suspected(self, stores: Stores) -> None:
        await stores.started()
        await stores.queue.claim(lease=AT_ONCE, most=1)

        assert len(await stores.queue.claim(lease=LEASE, most=1, caution=Caution(2, most=0))) == 1


class TestLeases:
    async def test_a_renewed_run_is_not_lost(self, stores: Stores) -> None:
        await stores.started()
        claim = await stores.claimed(lease=AT_ONCE)

        standing = await stores.queue.renew([claim], lease=LEASE)

        assert {claim.run.id: Standing(cancel_reason=None, agent_gone=False)} == standing
        assert standing == await stores.queue.standing([claim])
        assert await stores.queue.claim(lease=LEASE, most=1) == []

    async def test_what_another_took_is_missing(self, stores: Stores) -> None:
        await stores.started()
        stale = await stores.claimed(lease=AT_ONCE)
        claim = await stores.claimed()

        assert await stores.queue.renew([stale], lease=LEASE) == {}
        assert await stores.queue.standing([stale]) == {}
        assert {claim.run.id} == set(await stores.queue.standing([claim, stale]))

    async def test_what_ended_or_was_deleted_is_missing(self, stores: Stores) -> None:
        await stores.started()
        ended = await stores.claimed()
        await stores.queue.journal(ended).finish(ENDED, [answer()])
        await stores.started()
        deleted = await stores.claimed()
        await stores.sessions.delete(ALICE, deleted.run.session_id)

        assert await stores.queue.renew([ended, deleted], lease=LEASE) == {}
        assert await stores.queue.standing([ended, deleted]) == {}

    async def test_a_wish_to_cancel_is_told(self, stores: Stores) -> None:
        run = await stores.started()
        claim = await stores.claimed()
        await stores.runs.cancel(ALICE, run.id)
        told = {run.id: Standing(cancel_reason=StopReason.CANCELLED, agent_gone=False)}

        assert told == await stores.queue.standing([claim])
        assert told == await stores.queue.renew([claim], lease=LEASE)

    async def test_an_agent_that_is_gone_is_told(self, stores: Stores) -> None:
        run = await stores.started()
        claim = await stores.claimed()
        await stores.agents.delete(ALICE, run.agent_id)
        told = {run.id: Standing(cancel_reason=None, agent_gone=True)}

        assert told == await stores.queue.standing([claim])
        assert told == await stores.queue.renew([claim], lease=LEASE)


class TestContext:
    async def test_a_run_begins_with_its_agent_and_its_question(self, stores: Stores) -> None:
        run = await stores.started("What?")
        claim = await stores.claimed()

        context = await stores.queue.context(claim)

        assert claim.run == context.run
        assert await stores.agents.get(ALICE, run.agent_id) == context.agent
        assert Identity("acme", "alice") == context.identity
        assert (list(context.history), [each.text for each in context.turn]) == ([], ["What?"])
        assert frozenset() == context.started_calls

    async def test_a_run_works_with_the_rights_of_a_member_only(self, stores: Stores) -> None:
        await stores.started(identity=ADMIN)

        context = await stores.queue.context(await stores.claimed())

        assert not context.identity.is_admin

    async def test_the_agent_stays_as_it_was_when_the_run_began(self, stores: Stores) -> None:
        run = await stores.started()
        claim = await stores.claimed(lease=AT_ONCE)
        begun = await stores.queue.context(claim)
        await stores.agents.update(ALICE, run.agent_id, lambda _: AgentSettings("New"))

        again = await stores.queue.context(await stores.claimed())

        assert begun.agent.settings == again.agent.settings

    async def test_time_counts_from_when_the_run_was_first_taken(self, stores: Stores) -> None:
        await stores.started()
        first = await stores.queue.context(await stores.claimed(lease=AT_ONCE))
        again = await stores.queue.context(await stores.claimed())

        assert timedelta() <= first.elapsed < again.elapsed < timedelta(minutes=1)

    async def test_a_run_that_has_not_begun_follows_its_agent(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.agents.update(ALICE, run.agent_id, lambda _: AgentSettings("New"))

        context = await stores.queue.context(await stores.claimed())

        assert context.agent.settings == AgentSettings("New")

    async def test_history_is_in_turn_order_without_later_questions(self, stores: Stores) -> None:
        session = await stores.session()
        for text in ("one", "two", "three"):
            await stores.runs.start(ALICE, session.id, text)
        for text in ("1", "2"):
            await stores.queue.journal(await stores.claimed()).finish(ENDED, [answer(text)])

        claim = await stores.claimed()
        context = await stores.queue.context(claim)

        assert [each.text for each in context.history] == ["one", "1", "two", "2"]
        assert [each.text for each in context.turn] == ["three"]

    async def test_history_keeps_the_newest_that_the_window_takes(self, stores: Stores) -> None:
        settings = AgentSettings("Short", window=Window(max_messages=3))
        session = await stores.session(ALICE, settings)
        for text in ("one", "two", "three"):
            await stores.runs.start(ALICE, session.id, text)
        for text in ("1", "2"):
            await stores.queue.journal(await stores.claimed()).finish(ENDED, [answer(text)])

        context = await stores.queue.context(await stores.claimed())

        assert [each.text for each in context.history] == ["1", "two", "2"]

    async def test_history_is_bounded_in_bytes_from_the_newest_on(self, stores: Stores) -> None:
        session = await stores.session()
        mebibyte = 1024 * 1024
        for digit in range(5):
            await stores.runs.start(ALICE, session.id, str(digit) * mebibyte)
            closing = [answer(str(digit) * mebibyte)]
            await stores.queue.journal(await stores.claimed()).finish(ENDED, closing)
        await stores.runs.start(ALICE, session.id, "Hello")

        context = await stores.queue.context(await stores.claimed())

        assert [each.text[0] for each in context.history] == ["1", "2", "2", "3", "3", "4", "4"]

    async def test_without_its_agent_there_is_none(self, stores: Stores) -> None:
        gone = await stores.started()
        await stores.agents.delete(ALICE, gone.agent_id)
        with pytest.raises(AgentDeletedError):
            await stores.queue.context(await stores.claimed())

        session = await stores.session(ALICE, SHARED)
        bobs = await stores.sessions.create(BOB, session.agent_id)
        await stores.runs.start(BOB, bobs.id, "Hello")
        await stores.agents.update(ALICE, session.agent_id, lambda _: PRIVATE)
        with pytest.raises(AgentDeletedError):
            await stores.queue.context(await stores.claimed())

    async def test_who_lost_the_run_gets_none(self, stores: Stores) -> None:
        await stores.started()
        stale = await stores.claimed(lease=AT_ONCE)
        await stores.claimed()

        with pytest.raises(FencedError):
            await stores.queue.context(stale)


class TestJournal:
    async def test_a_turn_is_written_step_by_step(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        offered = Offered(("look",), (CITATION.knowledge_base_id,), "large")

        await journal.set_state(RunState.THINKING, offered=offered)
        asked = Draft(
            Role.ASSISTANT, "Hm", tool_calls=(call("a", arguments='{"x":'),), metadata={"k": [1]}
        )
        first = await journal.append_assistant(asked, usage=Usage(10, 2))
        await journal.set_state(RunState.EXECUTING)
        found = Draft(
            Role.TOOL,
            "seen",
            tool_call_id=ToolCallId("a"),
            tool_name="look",
            citations=(CITATION,),
        )
        [second] = await journal.append_tool_results([found])
        last = await journal.finish(ENDED, [answer()], usage=Usage(20, 3), steps=1)

        assert [first, second, *last] == (await stores.said(run))[1:]
        assert [each.sequence for each in (first, second, *last)] == [2, 3, 4]
        assert (asked.tool_calls, asked.metadata) == (first.tool_calls, first.metadata)
        assert (found.citations, "a", "look") == (
            second.citations,
            second.tool_call_id,
            second.tool_name,
        )
        ended = await stores.runs.get(ALICE, run.id)
        assert (ended.state, ended.stop_reason) == (RunState.FINISHED, StopReason.END_TURN)
        assert (2, Usage(30, 5), offered) == (ended.step_count, ended.usage, ended.offered)
        session = await stores.sessions.get(ALICE, run.session_id)
        assert (session.last_sequence, session.active_run_id) == (4, None)

    async def test_what_is_used_adds_up(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        euros, dollars = Cost("EUR", 10**10), Cost("USD", 5)

        told = []
        for number, cost in enumerate((None, euros, euros, None)):
            asked = asking(call(f"c{number}"))
            await journal.append_assistant(asked, usage=Usage(10, 5, 4, 3, cost))
            told.append((await stores.runs.get(ALICE, run.id)).usage)
        await journal.finish(ENDED, [answer()], usage=Usage(1, 1, 1, 1, dollars), steps=1)
        told.append((await stores.runs.get(ALICE, run.id)).usage)

        assert told == [
            Usage(10, 5, 4, 3),
            Usage(20, 10, 8, 6, euros),
            Usage(30, 15, 12, 9, Cost("EUR", 2 * 10**10)),
            Usage(40, 20, 16, 12, Cost("EUR", 2 * 10**10)),
            Usage(41, 21, 17, 13, dollars),
        ]

    async def test_what_was_offered_stays_until_it_is_offered_anew(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        offered = Offered((), (), "large")

        await journal.set_state(RunState.THINKING, offered=offered)
        await journal.set_state(RunState.EXECUTING)

        told = await stores.runs.get(ALICE, run.id)
        assert (RunState.EXECUTING, offered) == (told.state, told.offered)

    async def test_who_lost_the_run_writes_nothing(self, stores: Stores, write: Write) -> None:
        run = await stores.started()
        stale = await stores.claimed(lease=AT_ONCE)
        held = await stores.claimed()

        with pytest.raises(FencedError):
            await write(stores.queue.journal(stale))

        assert len(await stores.said(run)) == 1
        assert held.run == await stores.runs.get(ALICE, run.id)
        assert (await stores.queue.context(held)).started_calls == frozenset()

    async def test_nothing_is_written_after_the_end(self, stores: Stores, write: Write) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.finish(ENDED, [answer()])
        ended = await stores.runs.get(ALICE, run.id)

        with pytest.raises(FencedError):
            await write(journal)

        assert ended == await stores.runs.get(ALICE, run.id)
        assert len(await stores.said(run)) == 2

    async def test_nothing_is_written_into_a_deleted_session(
        self, stores: Stores, write: Write
    ) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await stores.sessions.delete(ALICE, run.session_id)

        with pytest.raises(FencedError):
            await write(journal)

    async def test_after_a_wish_to_cancel_only_the_cancelled_end_is_written(
        self, stores: Stores, write: Write
    ) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await stores.runs.cancel(ALICE, run.id)

        with pytest.raises(FencedError):
            await write(journal)
        await journal.finish(CANCELLED, [Draft(Role.SYSTEM, "Stopped.")])

        assert [each.text for each in await stores.said(run)] == ["Hello", "Stopped."]
        ended = await stores.runs.get(ALICE, run.id)
        assert (ended.state, ended.cancel_requested) == (RunState.CANCELLED, False)

    async def test_a_failure_leaves_a_word_to_a_person(self, stores: Stores) -> None:
        run = await stores.started()

        await stores.queue.journal(await stores.claimed()).finish(FAILED)

        _, told = await stores.said(run)
        assert (Role.SYSTEM, "No.", run.id) == (told.role, told.text, told.run_id)
        failed = await stores.runs.get(ALICE, run.id)
        assert (RunState.ERROR, FAILED.error) == (failed.state, failed.error)

    async def test_no_call_stays_without_its_result(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a"), call("b")), usage=Usage())
        await journal.append_tool_results([result_of(call("b"))])

        await journal.finish(FAILED)

        *_, missing, told = await stores.said(run)
        assert (missing.role, missing.tool_call_id, missing.tool_name) == (Role.TOOL, "a", "look")
        assert missing.text
        assert told.role is Role.SYSTEM

    async def test_started_calls_are_those_of_the_last_message(self, stores: Stores) -> None:
        await stores.started()
        claim = await stores.claimed()
        journal = stores.queue.journal(claim)
        await journal.append_assistant(asking(call("a")), usage=Usage())
        await journal.start_tool_calls([ToolCallId("a")])
        started = await stores.queue.context(claim)
        await journal.append_tool_results([result_of(call("a"))])
        await journal.append_assistant(asking(call("b")), usage=Usage())

        assert {"a"} == started.started_calls
        assert (await stores.queue.context(claim)).started_calls == frozenset()

    async def test_a_later_worker_goes_on_behind_the_last_message(self, stores: Stores) -> None:
        run = await stores.started()
        lost = stores.queue.journal(await stores.claimed(lease=AT_ONCE))
        await lost.append_assistant(asking(call("a"), call("b")), usage=Usage(5, 6))
        await lost.append_tool_results([result_of(call("a"))])

        context = await stores.queue.context(await stores.claimed())

        assert await stores.said(run) == list(context.turn)
        assert (1, Usage(5, 6)) == (context.run.step_count, context.run.usage)
