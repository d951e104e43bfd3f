"""Every store puts a run that failed back in line in the same way."""

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CRASH_LOOP, INTERNAL
from services.agent.domain.errors import (
    AgentDeletedError,
    FencedError,
    QueueFullError,
    RunNotFailedError,
)
from services.agent.domain.messages import Role
from services.agent.domain.models import AgentSettings, RunLimits
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import (
    Offered,
    Run,
    RunState,
    Spent,
    StopReason,
    Usage,
    WhenBusy,
)
from services.common.errors import NotFoundError
from tests.contracts.agent_stores import (
    ADMIN,
    ALICE,
    AT_ONCE,
    BOB,
    LEASE,
    QUEUE_LIMIT,
    STRANGER,
    Stores,
    answer,
    asking,
    call,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)


async def failed(stores: Stores, claim: Claim | None = None) -> Run:
    """A run that has failed after a step, a call of it without result."""
    claim = claim or await _started(stores)
    journal = stores.queue.journal(claim)
    await journal.set_state(RunState.THINKING, offered=Offered((), (), "m"))
    await journal.append_assistant(asking(call("a"), call("b")), usage=Usage(10, 2))
    await journal.append_tool_results([result_of(call("a"))])
    await journal.finish(INTERNAL, usage=Usage(20, 3), steps=1)
    return await stores.runs.get(ALICE, claim.run.id)


async def _started(stores: Stores) -> Claim:
    await stores.started()
    return await stores.claimed()


class TestRetry:
    async def test_a_failed_run_waits_again_as_if_it_had_not_failed(self, stores: Stores) -> None:
        was = await failed(stores)

        run = await stores.runs.retry(ALICE, was.id)

        assert run == await stores.runs.get(ALICE, was.id)
        assert (run.state, run.stop_reason, run.error) == (RunState.IDLE, None, None)
        assert (run.start_time, run.end_time) == (None, None)
        assert (was.turn, was.message_id, was.create_time, was.offered) == (
            run.turn,
            run.message_id,
            run.create_time,
            run.offered,
        )
        session = await stores.sessions.get(ALICE, run.session_id)
        assert run.id == session.active_run_id
        assert run.id == (await stores.claimed()).run.id

    async def test_what_it_used_up_is_kept_and_its_limits_count_anew(self, stores: Stores) -> None:
        was = await failed(stores)

        run = await stores.runs.retry(ALICE, was.id)

        assert (2, Usage(30, 5), 1) == (was.step_count, was.usage, was.attempt)
        assert (was.step_count, was.usage, 2) == (run.step_count, run.usage, run.attempt)
        assert Spent(steps=2, calls=2, tokens=35) == run.before
        limits = run.bounds(RunLimits(max_steps=3, max_tool_calls=4, max_tokens=100))
        assert (limits.steps, limits.tool_calls, limits.max_tokens) == (5, 6, 135)

    async def test_it_goes_on_behind_its_work_and_is_not_shown_the_failure(
        self, stores: Stores
    ) -> None:
        was = await failed(stores)
        await stores.runs.retry(ALICE, was.id)

        context = await stores.queue.context(await stores.claimed())

        assert [(each.role, each.tool_call_id) for each in context.turn] == [
            (Role.USER, None),
            (Role.ASSISTANT, None),
            (Role.TOOL, "a"),
            (Role.TOOL, "b"),
        ]
        *_, told = await stores.said(was)
        assert (told.role, told.discarded) == (Role.SYSTEM, True)
        assert frozenset() == context.started_calls

    async def test_nor_is_a_later_run_shown_the_failure(self, stores: Stores) -> None:
        was = await failed(stores)
        await stores.runs.retry(ALICE, was.id)
        await stores.queue.journal(await stores.claimed()).finish(ENDED, [answer()])
        await stores.runs.start(ALICE, was.session_id, "More")

        context = await stores.queue.context(await stores.claimed())

        assert Role.SYSTEM not in [each.role for each in context.history]

    async def test_its_crashes_are_forgotten(self, stores: Stores) -> None:
        run = await stores.started()
        for _ in range(5):
            await stores.claimed(lease=AT_ONCE)
        claim = await stores.claimed()
        assert claim.crashes == 5
        await stores.queue.journal(claim).finish(CRASH_LOOP)

        await stores.runs.retry(ALICE, run.id)

        again = await stores.claimed()
        assert (run.id, 0, claim.epoch + 1) == (again.run.id, again.crashes, again.epoch)
        with pytest.raises(FencedError):
            await stores.queue.journal(claim).set_state(RunState.THINKING)

    async def test_it_takes_its_agent_as_it_is_then(self, stores: Stores) -> None:
        claim = await _started(stores)
        await stores.queue.context(claim)
        await failed(stores, claim)
        await stores.agents.update(ALICE, claim.run.agent_id, lambda _: AgentSettings("Mended"))

        await stores.runs.retry(ALICE, claim.run.id)

        context = await stores.queue.context(await stores.claimed())
        assert AgentSettings("Mended") == context.agent.settings

    async def test_it_may_fail_and_be_retried_again(self, stores: Stores) -> None:
        was = await failed(stores)
        await stores.runs.retry(ALICE, was.id)
        await failed(stores, await stores.claimed())

        run = await stores.runs.retry(ALICE, was.id)

        assert (3, Spent(steps=4, calls=4, tokens=70)) == (run.attempt, run.before)
        notices = [each for each in await stores.said(was) if each.role is Role.SYSTEM]
        assert [each.discarded for each in notices] == [True, True]

    async def test_a_run_that_has_not_ended_stays_as_it_is(self, stores: Stores) -> None:
        was = await failed(stores)
        retried = await stores.runs.retry(ALICE, was.id)

        assert retried == await stores.runs.retry(ALICE, was.id)
        claim = await stores.claimed()
        assert claim.run == await stores.runs.retry(ALICE, was.id)
        assert claim.run == await stores.runs.get(ALICE, was.id)

    async def test_only_what_failed_is_retried(self, stores: Stores) -> None:
        finished = await stores.started()
        await stores.queue.journal(await stores.claimed()).finish(ENDED, [answer()])
        cancelled = await stores.started()
        await stores.runs.cancel(ALICE, cancelled.id)

        for run, state in ((finished, "FINISHED"), (cancelled, "CANCELLED")):
            with pytest.raises(RunNotFailedError) as refused:
                await stores.runs.retry(ALICE, run.id)
            assert {"run_id": run.id, "state": state} == refused.value.metadata

    async def test_without_its_agent_it_is_not(self, stores: Stores) -> None:
        was = await failed(stores)
        await stores.agents.delete(ALICE, was.agent_id)

        with pytest.raises(AgentDeletedError):
            await stores.runs.retry(ALICE, was.id)

        assert was == await stores.runs.get(ALICE, was.id)

    async def test_its_user_and_admins_of_the_tenant_may(self, stores: Stores) -> None:
        was = await failed(stores)

        for identity in (BOB, STRANGER):
            with pytest.raises(NotFoundError) as unknown:
                await stores.runs.retry(identity, was.id)
            assert {"resource": "run", "id": was.id} == unknown.value.metadata
        assert was == await stores.runs.get(ALICE, was.id)
        assert RunState.IDLE is (await stores.runs.retry(ADMIN, was.id)).state


class TestOrder:
    async def test_it_comes_before_later_runs_that_wait(self, stores: Stores) -> None:
        was = await failed(stores)
        later, _ = await stores.runs.start(ALICE, was.session_id, "More")

        await stores.runs.retry(ALICE, was.id)

        claim = await stores.claimed()
        assert was.id == claim.run.id
        assert await stores.queue.claim(lease=LEASE, most=5) == []
        await stores.queue.journal(claim).finish(ENDED, [answer()])
        assert later.id == (await stores.claimed()).run.id

    async def test_it_waits_for_a_later_one_that_is_worked_on(self, stores: Stores) -> None:
        was = await failed(stores)
        later, _ = await stores.runs.start(ALICE, was.session_id, "More")
        working = await stores.claimed()
        other = await stores.started()

        await stores.runs.retry(ALICE, was.id)

        [claim] = await stores.queue.claim(lease=LEASE, most=5)
        assert (later.id, other.id) == (working.run.id, claim.run.id)
        await stores.queue.journal(working).finish(ENDED, [answer()])
        assert was.id == (await stores.claimed()).run.id

    async def test_a_later_one_that_is_handed_back_goes_on_too(self, stores: Stores) -> None:
        was = await failed(stores)
        later, _ = await stores.runs.start(ALICE, was.session_id, "More")
        working = await stores.claimed()
        await stores.runs.retry(ALICE, was.id)

        await stores.queue.hand_back(working)

        worked = []
        for _ in range(2):
            [claim] = await stores.queue.claim(lease=LEASE, most=5)
            worked.append(claim.run.id)
            await stores.queue.journal(claim).finish(ENDED, [answer()])
        assert {was.id, later.id} == set(worked)

    async def test_it_is_interrupted_like_any_other(self, stores: Stores) -> None:
        was = await failed(stores)
        await stores.runs.retry(ALICE, was.id)

        new, _ = await stores.runs.start(ALICE, was.session_id, "New", when_busy=WhenBusy.INTERRUPT)

        assert StopReason.INTERRUPTED is (await stores.runs.get(ALICE, was.id)).stop_reason
        assert new.id == (await stores.claimed()).run.id

    async def test_a_full_session_takes_none_back(self, stores: Stores) -> None:
        was = await failed(stores)
        waiting = [
            (await stores.runs.start(ALICE, was.session_id, "More"))[0] for _ in range(QUEUE_LIMIT)
        ]

        with pytest.raises(QueueFullError) as full:
            await stores.runs.retry(ALICE, was.id)

        assert full.value.metadata == {"limit": str(QUEUE_LIMIT), "scope": "session"}
        assert was == await stores.runs.get(ALICE, was.id)
        await stores.runs.cancel(ALICE, waiting[0].id)
        assert RunState.IDLE is (await stores.runs.retry(ALICE, was.id)).state
