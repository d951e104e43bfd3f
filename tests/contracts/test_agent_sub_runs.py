"""Runs that agents ask of other agents: one for each call, its caller's in all that matters."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CANCELLED, INTERRUPTED
from services.agent.domain.errors import (
    AgentDeletedError,
    FencedError,
    SubSessionError,
)
from services.agent.domain.messages import Role
from services.agent.domain.models import Agent, AgentId, HookSetting, RunLimits
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Cost, Run, RunState, StopReason, Usage, WhenBusy
from services.agent.domain.stores import Which
from services.agent.domain.sub_runs import Answered, Task
from services.common.errors import NotFoundError
from services.common.ids import new_id
from services.common.paging import Page
from tests.contracts.agent_stores import (
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
LIMITS = RunLimits(max_tool_calls=7, max_tokens=500, max_duration=timedelta(seconds=90))


@dataclass
class Case:
    """A run in hand whose agent asks another one."""

    stores: Stores
    caller: Claim
    callee: Agent

    def task(self, call_key: str = "k1", **fields: object) -> Task:
        return replace(Task(self.callee.id, "Look it up.", call_key, LIMITS), **fields)  # type: ignore[arg-type]

    async def ask(self, call_key: str = "k1", *, of: Claim | None = None) -> Claim:
        """The run of a sub-agent, which has not ended."""
        asked = await self.stores.queue.ask(of or self.caller, self.task(call_key), lease=LEASE)
        assert isinstance(asked, Claim)
        return asked

    async def answered(self, call_key: str = "k1") -> Answered:
        """What came of one."""
        asked = await self.stores.queue.ask(self.caller, self.task(call_key), lease=LEASE)
        assert isinstance(asked, Answered)
        return asked

    async def now(self, run: Run) -> Run:
        return await self.stores.runs.get(ALICE, run.id)

    async def retaken(self) -> Claim:
        """The caller's run, in the hands of the next worker."""
        [claim] = await self.stores.queue.claim(lease=LEASE, most=5)
        assert claim.run.id == self.caller.run.id
        return claim


@pytest.fixture
async def case(stores: Stores) -> Case:
    await stores.started("Ask somebody")
    callee = await stores.agents.create(ALICE, replace(PRIVATE, display_name="Researcher"))
    return Case(stores, await stores.claimed(), callee)


class TestAsking:
    async def test_it_is_a_run_in_a_session_of_its_own(self, case: Case) -> None:
        caller, sub = case.caller.run, (await case.ask()).run
        session = await case.stores.sessions.get(ALICE, sub.session_id)

        assert (sub.tenant, sub.user_id, sub.agent_id) == ("acme", "alice", case.callee.id)
        assert sub.parent is not None
        assert (sub.parent.run_id, sub.parent.call_key) == (caller.id, "k1")
        assert (sub.parent.callers, sub.parent.limits) == ((caller.agent_id,), LIMITS)
        assert (session.parent_run_id, session.parent_call_key) == (caller.id, "k1")
        assert (session.agent_id, session.title) == (case.callee.id, "Look it up.")
        [message] = await case.stores.said(sub)
        assert (message.role, message.text, message.id) == (
            *(Role.USER, "Look it up."),
            sub.message_id,
        )

    async def test_one_that_masks_has_a_title_without_personal_data(self, case: Case) -> None:
        masking = replace(PRIVATE, hooks=(HookSetting("pii_masking"),))
        case.callee = await case.stores.agents.create(ALICE, masking)
        task = case.task(text="Write to a@example.com")
        sub = await case.stores.queue.ask(case.caller, task, lease=LEASE)
        session = await case.stores.sessions.get(ALICE, sub.run.session_id)

        assert session.title == "Write to [email]"

    async def test_it_is_in_hand_at_once_and_in_no_line(self, case: Case) -> None:
        sub = await case.ask()
        context = await case.stores.queue.context(sub)

        assert sub.run.state is RunState.PLANNING
        assert (context.agent.settings.display_name, context.identity) == ("Researcher", ALICE)
        assert await case.stores.queue.claim(lease=LEASE, most=5) == []

    async def test_a_call_has_one_run_however_often_it_is_asked(self, case: Case) -> None:
        first, again, other = await case.ask(), await case.ask(), await case.ask("k2")

        assert first.run.id == again.run.id != other.run.id
        assert (again.epoch, again.crashes) == (first.epoch + 1, 1)
        with pytest.raises(FencedError):
            await case.stores.queue.journal(first).set_state(RunState.THINKING)
        await case.stores.queue.journal(again).set_state(RunState.THINKING)

    async def test_many_at_once_get_one_run(self, case: Case) -> None:
        asked = await asyncio.gather(
            *(case.stores.queue.ask(case.caller, case.task(), lease=LEASE) for _ in range(5)),
            return_exceptions=True,
        )

        claims = [each for each in asked if isinstance(each, Claim)]
        assert claims
        assert len({each.run.id for each in claims}) == 1
        listed = await case.stores.sessions.list(
            ALICE, Page(), Which(parent_run_id=case.caller.run.id)
        )
        assert len(listed) == 1

    async def test_an_ended_one_gives_its_answer(self, case: Case) -> None:
        sub = await case.ask()
        journal = case.stores.queue.journal(sub)
        await journal.append_assistant(asking(call("a"), call("b")), usage=Usage(7, 3))
        await journal.append_tool_results([result_of(call("a")), result_of(call("b"))])
        await journal.finish(ENDED, [answer("Found.")], usage=Usage(2, 1))

        told = await case.answered()

        assert (told.run.id, told.run.state) == (sub.run.id, RunState.FINISHED)
        assert told.answer is not None
        assert (told.answer.text, told.tool_calls) == ("Found.", 2)
        assert told.run.usage == Usage(9, 4)

    async def test_one_that_ended_without_an_answer_gives_none(self, case: Case) -> None:
        journal = case.stores.queue.journal(await case.ask())
        await journal.append_assistant(asking(call("a")), usage=Usage(7, 3))
        await journal.finish(CANCELLED)

        assert (await case.answered()).answer is None

    async def test_what_the_user_does_not_see_is_not_asked(self, case: Case) -> None:
        hidden = await case.stores.agents.create(BOB, PRIVATE)
        shared = await case.stores.agents.create(BOB, SHARED)
        for agent_id in (hidden.id, AgentId(new_id())):
            with pytest.raises(AgentDeletedError):
                await case.stores.queue.ask(case.caller, case.task(agent_id=agent_id), lease=LEASE)

        asked = await case.stores.queue.ask(case.caller, case.task(agent_id=shared.id), lease=LEASE)
        assert isinstance(asked, Claim)

    async def test_who_lost_the_caller_asks_for_nothing(self, case: Case) -> None:
        await case.stores.queue.hand_back(case.caller)

        with pytest.raises(FencedError):
            await case.ask()

    async def test_nor_does_a_run_that_is_to_stop(self, case: Case) -> None:
        await case.stores.runs.cancel(ALICE, case.caller.run.id)

        with pytest.raises(FencedError):
            await case.ask()

    async def test_they_nest(self, case: Case) -> None:
        sub = await case.ask()
        below = await case.ask("k2", of=sub)

        assert below.run.callers == (case.caller.run.agent_id, case.callee.id)


class TestTakingOver:
    async def test_a_lapsed_one_is_left_to_whoever_takes_its_caller(self, stores: Stores) -> None:
        await stores.started()
        caller = await stores.claimed(lease=AT_ONCE)
        callee = await stores.agents.create(ALICE, PRIVATE)
        case = Case(stores, caller, callee)
        first = await stores.queue.ask(caller, case.task(), lease=AT_ONCE)
        assert isinstance(first, Claim)

        case.caller = await case.retaken()
        again = await case.ask()

        assert (first.run.id, 1) == (again.run.id, again.crashes)

    async def test_one_that_was_handed_back_waits_for_its_caller(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.hand_back(sub)
        await case.stores.queue.hand_back(case.caller)

        case.caller = await case.retaken()
        again = await case.ask()

        assert (sub.run.id, 0) == (again.run.id, again.crashes)
        assert again.run.start_time == sub.run.start_time


class TestEnds:
    @pytest.mark.parametrize("held", [True, False])
    async def test_it_ends_with_its_caller(self, case: Case, *, held: bool) -> None:
        sub = await case.ask()
        below = await case.ask("k2", of=sub)
        if not held:
            await case.stores.queue.hand_back(below)
            await case.stores.queue.hand_back(sub)
        await case.stores.queue.journal(case.caller).finish(ENDED, [answer()])

        for run in (sub.run, below.run):
            ended = await case.now(run)
            assert (ended.state, ended.stop_reason) == (RunState.CANCELLED, StopReason.CANCELLED)
            assert [each.role for each in await case.stores.said(run)] == [Role.USER, Role.SYSTEM]
        with pytest.raises(FencedError):
            await case.stores.queue.journal(sub).set_state(RunState.THINKING)

    async def test_a_caller_that_is_interrupted_interrupts_it(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.hand_back(case.caller)
        await case.stores.runs.start(
            ALICE, case.caller.run.session_id, "Stop", when_busy=WhenBusy.INTERRUPT
        )

        assert (await case.now(sub.run)).stop_reason is StopReason.INTERRUPTED

    @pytest.mark.parametrize("ended_before", [True, False])
    async def test_one_that_is_rolled_back_takes_it_along(
        self, case: Case, *, ended_before: bool
    ) -> None:
        sub = await case.ask()
        below = await case.ask("k2", of=sub)
        if ended_before:
            for each in (below, sub):
                await case.stores.queue.journal(each).finish(ENDED, [answer()])
        await case.stores.runs.start(
            ALICE, case.caller.run.session_id, "Else", when_busy=WhenBusy.ROLLBACK
        )
        await case.stores.queue.journal(case.caller).finish(INTERRUPTED)

        for run in (case.caller.run, sub.run, below.run):
            assert (await case.now(run)).discarded
            said = await case.stores.said(run)
            assert {each.discarded for each in said if each.run_id == run.id} == {True}

    async def test_one_that_is_interrupted_leaves_it_what_it_said(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.runs.start(
            ALICE, case.caller.run.session_id, "Else", when_busy=WhenBusy.INTERRUPT
        )
        await case.stores.queue.journal(case.caller).finish(INTERRUPTED)

        assert not (await case.now(sub.run)).discarded
        assert {each.discarded for each in await case.stores.said(sub.run)} == {False}

    async def test_it_can_be_stopped_alone(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.hand_back(sub)
        await case.stores.runs.cancel(ALICE, sub.run.id)

        assert (await case.answered()).run.state is RunState.CANCELLED
        assert not (await case.now(case.caller.run)).state.final

    async def test_its_open_calls_are_answered(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.journal(sub).append_assistant(asking(call("a")), usage=Usage())
        await case.stores.queue.journal(case.caller).finish(ENDED, [answer()])

        roles = [each.role for each in await case.stores.said(sub.run)]
        assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM]


class TestUsage:
    async def test_it_counts_with_the_caller_from_the_result_on(self, case: Case) -> None:
        caller = case.stores.queue.journal(case.caller)
        await caller.append_assistant(asking(call("k")), usage=Usage(100, 10))
        sub = await case.ask()
        below = await case.ask("k2", of=sub)
        await case.stores.queue.journal(below).finish(ENDED, [answer()], usage=Usage(5, 1))
        journal = case.stores.queue.journal(sub)
        await journal.append_assistant(asking(call("a")), usage=Usage(20, 2))
        await journal.append_tool_results([result_of(call("a"))])
        await journal.finish(ENDED, [answer()])
        await caller.append_tool_results([result_of(call("k"))])

        run = await case.now(case.caller.run)

        assert (run.usage, run.sub_usage) == (Usage(125, 13), Usage(25, 3))
        assert run.sub_tool_calls == 1
        assert (await case.now(sub.run)).sub_usage == Usage(5, 1)

    async def test_all_of_it_counts(self, case: Case) -> None:
        used = Usage(20, 5, 4, 3, Cost("EUR", 7))
        caller = case.stores.queue.journal(case.caller)
        await caller.append_assistant(asking(call("k")), usage=used)
        sub = await case.ask()
        below = await case.ask("k2", of=sub)
        for each in (below, sub):
            await case.stores.queue.journal(each).finish(ENDED, [answer()], usage=used)
        await caller.append_tool_results([result_of(call("k"))])

        run = await case.now(case.caller.run)

        assert run.usage == used + used + used
        assert run.sub_usage == used + used

    async def test_what_was_cut_off_counts_too(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.journal(sub).append_assistant(asking(call("a")), usage=Usage(20, 2))
        await case.stores.queue.journal(case.caller).finish(ENDED, [answer()], usage=Usage(1, 1))

        run = await case.now(case.caller.run)
        assert (run.usage, run.sub_tool_calls) == (Usage(21, 3), 1)

    async def test_a_retry_has_its_limits_to_itself(self, case: Case) -> None:
        sub = await case.ask()
        await case.stores.queue.journal(sub).append_assistant(asking(call("a")), usage=Usage(20, 2))
        failed = Ending(RunState.ERROR, StopReason.MODEL_ERROR)
        await case.stores.queue.journal(case.caller).finish(failed, [answer()], usage=Usage(1, 1))

        retried = await case.stores.runs.retry(ALICE, case.caller.run.id)

        assert (retried.before.tokens, retried.before.calls) == (24, 1)


class TestSessions:
    async def test_they_are_listed_only_if_they_are_asked_for(self, case: Case) -> None:
        own = case.caller.run.session_id
        sub = (await case.ask()).run.session_id

        async def listed(which: Which) -> set[str]:
            return {each.id for each in await case.stores.sessions.list(ALICE, Page(), which)}

        assert await listed(Which()) == {own}
        assert await listed(Which(sub_sessions=True)) == {sub, own}
        assert await listed(Which(parent_run_id=case.caller.run.id)) == {sub}
        assert await listed(Which(agent_id=case.callee.id)) == set()
        assert await listed(Which(agent_id=case.callee.id, sub_sessions=True)) == {sub}

    async def test_they_are_the_users_alone(self, case: Case) -> None:
        sub = (await case.ask()).run

        with pytest.raises(NotFoundError):
            await case.stores.sessions.get(BOB, sub.session_id)
        which = Which(parent_run_id=case.caller.run.id)
        assert await case.stores.sessions.list(BOB, Page(), which) == []

    @pytest.mark.parametrize("when_busy", WhenBusy)
    async def test_they_take_no_messages(self, case: Case, when_busy: WhenBusy) -> None:
        sub = (await case.ask()).run

        with pytest.raises(SubSessionError) as refused:
            await case.stores.runs.start(ALICE, sub.session_id, "Hello", when_busy=when_busy)

        parent = {"session_id": sub.session_id, "parent_run_id": case.caller.run.id}
        assert parent == refused.value.metadata
        assert not (await case.now(sub)).cancel_requested

    async def test_their_runs_are_not_retried(self, case: Case) -> None:
        sub = await case.ask()
        failed = Ending(RunState.ERROR, StopReason.MODEL_ERROR)
        await case.stores.queue.journal(sub).finish(failed, [answer()])

        with pytest.raises(SubSessionError):
            await case.stores.runs.retry(ALICE, sub.run.id)

    async def test_they_are_not_deleted_alone(self, case: Case) -> None:
        sub = (await case.ask()).run

        with pytest.raises(SubSessionError):
            await case.stores.sessions.delete(ALICE, sub.session_id)

    async def test_they_are_deleted_with_the_callers(self, case: Case) -> None:
        sub = await case.ask()
        below = await case.ask("k2", of=sub)

        deleted = await case.stores.sessions.delete(ALICE, case.caller.run.session_id)

        assert (deleted.messages, deleted.runs) == (3, 3)
        for claim in (case.caller, sub, below):
            with pytest.raises(NotFoundError):
                await case.now(claim.run)
        assert await case.stores.queue.standing([sub, below]) == {}
        assert await case.stores.sessions.list(ALICE, Page(), Which(sub_sessions=True)) == []
