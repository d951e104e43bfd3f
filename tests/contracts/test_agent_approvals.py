"""Every store lets runs wait for a person, and takes the answers alike."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from services.agent.domain.approval_models import (
    Answer,
    Approval,
    ApprovalId,
    ApprovalState,
    Decision,
    Question,
)
from services.agent.domain.chat import Ending
from services.agent.domain.errors import (
    ApprovalExpiredError,
    ApprovalMismatchError,
    ApprovalResolvedError,
    FencedError,
)
from services.agent.domain.ledger import ToolCallState
from services.agent.domain.messages import Role
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Caution
from services.agent.domain.run_models import Run, RunState, StopReason, Usage, WhenBusy
from services.agent.domain.stores import RequestKey
from services.common.clock import now
from services.common.errors import NotFoundError, RequestIdReusedError
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from tests.contracts.agent_stores import (
    ADMIN,
    ALICE,
    AT_ONCE,
    BOB,
    LEASE,
    STRANGER,
    Stores,
    asking,
    call,
    result_of,
)

LONG = timedelta(minutes=10)
ALL = Page(size=50)
PENDING, APPROVED, DENIED, EXPIRED, CANCELLED = ApprovalState


def question(identifier: str, arguments: str = '{"n":1}') -> Question:
    return Question(ToolCallId(identifier), "look", arguments)


def yes(approval: Approval) -> Answer:
    return Answer(Decision.APPROVE, approval.question.digest)


NO = Answer(Decision.DENY, comment="not today")


async def parked(stores: Stores, *calls: str, within: timedelta = LONG) -> Run:
    """A run that waits for a person's word on these calls."""
    run = await stores.started()
    journal = stores.queue.journal(await stores.claimed())
    await journal.append_assistant(asking(*map(call, calls)), usage=Usage())
    await journal.park([question(each) for each in calls], within=within)
    return run


async def approvals(stores: Stores, run: Run) -> Sequence[Approval]:
    return await stores.approvals.list(ALICE, ALL, run_id=run.id)


async def state(stores: Stores, run: Run) -> RunState:
    return (await stores.runs.get(ALICE, run.id)).state


class TestPark:
    async def test_the_questions_are_kept_whole_and_in_order(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")

        first, second = await approvals(stores, run)

        assert (question("a"), question("b")) == (first.question, second.question)
        assert (run.id, run.session_id, 1, 1, 0) == (
            first.run_id,
            first.session_id,
            first.turn,
            first.step,
            first.place,
        )
        assert (
            first.state,
            first.expire_time - first.create_time,
            first.resolve_time,
            first.resolver_user_id,
            first.comment,
        ) == (PENDING, LONG, None, "", "")
        assert await state(stores, run) is RunState.AWAITING_APPROVAL

    async def test_nobody_holds_the_run(self, stores: Stores) -> None:
        run = await stores.started()
        claim = await stores.claimed()
        journal = stores.queue.journal(claim)
        await journal.append_assistant(asking(call("a")), usage=Usage())

        await journal.park([question("a")], within=LONG)

        assert await stores.queue.renew([claim], lease=LEASE) == {}
        with pytest.raises(FencedError):
            await journal.append_tool_results([result_of(call("a"))])
        with pytest.raises(FencedError):
            await stores.queue.context(claim)
        await stores.queue.hand_back(claim)
        assert await stores.queue.claim(lease=LEASE, most=1) == []
        assert await state(stores, run) is RunState.AWAITING_APPROVAL

    async def test_the_next_run_of_the_session_waits_behind_it(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        await stores.runs.start(ALICE, run.session_id, "And?")

        assert await stores.queue.claim(lease=LEASE, most=5) == []

    async def test_a_run_that_is_to_stop_does_not_wait(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())
        await stores.runs.cancel(ALICE, run.id)

        with pytest.raises(FencedError):
            await journal.park([question("a")], within=LONG)

        assert await approvals(stores, run) == []

    async def test_a_question_that_was_put_before_stays_as_it_is(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b", within=AT_ONCE)
        before = await approvals(stores, run)
        journal = stores.queue.journal(await stores.claimed())

        await journal.park([question("a")], within=LONG)

        assert before == await approvals(stores, run)
        assert (await stores.claimed()).run.id == run.id


class TestResolve:
    async def test_the_last_answer_lets_the_run_go_on(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")
        first, second = await approvals(stores, run)

        approved, waiting = await stores.approvals.resolve(ALICE, first.id, yes(first))
        assert (approved.state, approved.resolver_user_id) == (APPROVED, "alice")
        assert waiting.state is RunState.AWAITING_APPROVAL
        assert await stores.queue.claim(lease=LEASE, most=1) == []

        denied, going_on = await stores.approvals.resolve(ALICE, second.id, NO)
        assert (denied.state, denied.comment) == (DENIED, "not today")
        assert going_on.state is RunState.IDLE
        claim = await stores.claimed()
        assert (run.id, 0) == (claim.run.id, claim.crashes)

    async def test_whoever_goes_on_knows_the_answers(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")
        first, second = await approvals(stores, run)
        await stores.approvals.resolve(ALICE, first.id, yes(first))
        await stores.approvals.resolve(ALICE, second.id, NO)

        context = await stores.queue.context(await stores.claimed())

        assert {each: approval.state for each, approval in context.approvals.items()} == {
            "a": APPROVED,
            "b": DENIED,
        }
        assert frozenset() == context.started_calls

    async def test_answers_of_earlier_steps_are_left_out(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)
        await stores.approvals.resolve(ALICE, approval.id, yes(approval))
        claim = await stores.claimed()
        journal = stores.queue.journal(claim)
        await journal.append_tool_results([result_of(call("a"))])
        await journal.append_assistant(asking(call("b")), usage=Usage())

        assert (await stores.queue.context(claim)).approvals == {}

    async def test_waiting_takes_none_of_the_runs_time(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        await asyncio.sleep(0.2)
        [approval] = await approvals(stores, run)
        denied, _ = await stores.approvals.resolve(ALICE, approval.id, NO)
        claim = await stores.claimed()

        context = await stores.queue.context(claim)

        assert claim.run.start_time is not None
        assert denied.resolve_time is not None
        waited = denied.resolve_time - denied.create_time
        assert waited >= timedelta(seconds=0.15)
        assert timedelta(0) <= context.elapsed <= now() - claim.run.start_time - waited

    @pytest.mark.parametrize("identity", [BOB, ADMIN, STRANGER])
    async def test_nobody_else_sees_or_answers_it(self, stores: Stores, identity: Identity) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)

        with pytest.raises(NotFoundError):
            await stores.approvals.resolve(identity, approval.id, yes(approval))

        assert await stores.approvals.list(identity, ALL, run_id=run.id) == []
        assert [approval] == await approvals(stores, run)

    async def test_an_unknown_one_cannot_be_answered(self, stores: Stores) -> None:
        with pytest.raises(NotFoundError):
            await stores.approvals.resolve(ALICE, ApprovalId(new_id()), NO)

    @pytest.mark.parametrize("first", Decision)
    @pytest.mark.parametrize("then", Decision)
    async def test_it_is_answered_once(
        self, stores: Stores, first: Decision, then: Decision
    ) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)
        answer = yes(approval)
        await stores.approvals.resolve(ALICE, approval.id, replace(answer, decision=first))

        with pytest.raises(ApprovalResolvedError) as refused:
            await stores.approvals.resolve(ALICE, approval.id, replace(answer, decision=then))

        assert {"approval_id": approval.id, "state": first.state.name} == refused.value.metadata

    @pytest.mark.parametrize("decision", Decision)
    async def test_an_answer_to_other_arguments_is_none(
        self, stores: Stores, decision: Decision
    ) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)

        with pytest.raises(ApprovalMismatchError):
            await stores.approvals.resolve(
                ALICE, approval.id, Answer(decision, question("a", '{"n":2}').digest)
            )

        assert [approval] == await approvals(stores, run)

    async def test_an_approval_names_what_it_approves(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)

        with pytest.raises(ApprovalMismatchError):
            await stores.approvals.resolve(ALICE, approval.id, Answer(Decision.APPROVE))

    async def test_the_same_request_is_answered_again(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")
        first, second = await approvals(stores, run)
        request = RequestKey(new_id(), b"1" * 32)
        once, _ = await stores.approvals.resolve(ALICE, first.id, yes(first), request=request)

        again, _ = await stores.approvals.resolve(ALICE, first.id, yes(first), request=request)
        with pytest.raises(RequestIdReusedError):
            await stores.approvals.resolve(
                ALICE, second.id, NO, request=replace(request, digest=b"2" * 32)
            )

        assert once == again
        assert [each.state for each in await approvals(stores, run)] == [APPROVED, PENDING]

    async def test_a_refused_answer_leaves_no_request(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)
        request = RequestKey(new_id(), b"1" * 32)
        with pytest.raises(ApprovalMismatchError):
            await stores.approvals.resolve(
                ALICE, approval.id, Answer(Decision.APPROVE, "0" * 64), request=request
            )

        approved, _ = await stores.approvals.resolve(
            ALICE, approval.id, yes(approval), request=request
        )

        assert approved.state is APPROVED


class TestExpiry:
    async def test_without_an_answer_it_expires_and_the_run_goes_on(self, stores: Stores) -> None:
        run = await parked(stores, "a", within=AT_ONCE)

        claim = await stores.claimed()

        assert (run.id, 0) == (claim.run.id, claim.crashes)
        context = await stores.queue.context(claim)
        [approval] = await approvals(stores, run)
        assert {"a": approval} == context.approvals
        assert (EXPIRED, approval.expire_time) == (approval.state, approval.resolve_time)

    async def test_it_cannot_be_answered_any_more(self, stores: Stores) -> None:
        run = await parked(stores, "a", within=AT_ONCE)
        [approval] = await approvals(stores, run)

        with pytest.raises(ApprovalExpiredError) as refused:
            await stores.approvals.resolve(ALICE, approval.id, yes(approval))

        assert refused.value.metadata["approval_id"] == approval.id
        assert [approval] == await approvals(stores, run)

    async def test_a_run_that_waited_long_is_not_suspected(self, stores: Stores) -> None:
        await parked(stores, "a", within=AT_ONCE)

        [claim] = await stores.queue.claim(lease=LEASE, most=1, caution=Caution(crashes=2, most=0))

        assert claim.crashes == 0

    async def test_a_worker_that_is_lost_afterwards_is_a_crash(self, stores: Stores) -> None:
        await parked(stores, "a", within=AT_ONCE)
        await stores.claimed(lease=AT_ONCE)

        assert (await stores.claimed()).crashes == 1


class TestStop:
    async def check_stopped(self, stores: Stores, run: Run, reason: StopReason) -> None:
        ended = await stores.runs.get(ALICE, run.id)
        assert (RunState.CANCELLED, reason) == (ended.state, ended.stop_reason)
        assert [each.state for each in await approvals(stores, run)] == [CANCELLED, CANCELLED]
        said = [each for each in await stores.said(run) if each.run_id == run.id]
        assert [each.role for each in said] == [
            Role.USER,
            Role.ASSISTANT,
            Role.TOOL,
            Role.TOOL,
            Role.SYSTEM,
        ]
        calls = await stores.runs.tool_calls(ALICE, run.id, Page(size=9))
        assert {ToolCallState.FAILED} == {each.state for each in calls}
        [approval, _] = await approvals(stores, run)
        with pytest.raises(ApprovalResolvedError):
            await stores.approvals.resolve(ALICE, approval.id, yes(approval))

    async def test_a_cancel_ends_it_at_once(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")

        ended = await stores.runs.cancel(ALICE, run.id)

        assert ended.state is RunState.CANCELLED
        await self.check_stopped(stores, run, StopReason.CANCELLED)

    @pytest.mark.parametrize("when_busy", [WhenBusy.INTERRUPT, WhenBusy.ROLLBACK])
    async def test_another_message_ends_it_at_once(
        self, stores: Stores, when_busy: WhenBusy
    ) -> None:
        run = await parked(stores, "a", "b")

        other, _ = await stores.runs.start(ALICE, run.session_id, "No!", when_busy=when_busy)

        await self.check_stopped(stores, run, StopReason.INTERRUPTED)
        said = [each for each in await stores.said(run) if each.run_id == run.id]
        assert {when_busy is WhenBusy.ROLLBACK} == {each.discarded for each in said}
        assert (await stores.claimed()).run.id == other.id

    async def test_what_was_answered_stays_answered(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")
        first, _ = await approvals(stores, run)
        await stores.approvals.resolve(ALICE, first.id, yes(first))

        await stores.runs.cancel(ALICE, run.id)

        assert [each.state for each in await approvals(stores, run)] == [APPROVED, CANCELLED]

    async def test_they_are_deleted_with_their_session(self, stores: Stores) -> None:
        run = await parked(stores, "a")
        [approval] = await approvals(stores, run)

        await stores.sessions.delete(ALICE, run.session_id)

        with pytest.raises(NotFoundError):
            await stores.approvals.resolve(ALICE, approval.id, NO)


class TestList:
    async def test_those_of_a_session_come_in_the_order_of_the_calls(self, stores: Stores) -> None:
        run = await parked(stores, "a", "b")
        for approval in await approvals(stores, run):
            await stores.approvals.resolve(ALICE, approval.id, NO)
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_tool_results([result_of(call("a")), result_of(call("b"))])
        await journal.finish(Ending(RunState.FINISHED, StopReason.END_TURN))
        await stores.runs.start(ALICE, run.session_id, "And?")
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("c")), usage=Usage())
        await journal.park([question("c")], within=LONG)

        listed = await stores.approvals.list(ALICE, ALL, session_id=run.session_id)

        assert [each.question.tool_call_id for each in listed] == ["a", "b", "c"]
        after = Page(size=1, after=(listed[0].position,))
        assert [listed[1]] == await stores.approvals.list(ALICE, after, session_id=run.session_id)
        assert [listed[2]] == await stores.approvals.list(
            ALICE, ALL, session_id=run.session_id, state=PENDING
        )
        assert listed[:2] == await stores.approvals.list(ALICE, ALL, run_id=run.id)

    async def test_the_state_that_is_asked_for_is_that_of_now(self, stores: Stores) -> None:
        run = await parked(stores, "a", within=AT_ONCE)

        assert await stores.approvals.list(ALICE, ALL, run_id=run.id, state=PENDING) == []
        assert len(await stores.approvals.list(ALICE, ALL, run_id=run.id, state=EXPIRED)) == 1
