"""Workers over the queue in PostgreSQL, with loops that the tests write."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

import pytest

from services.agent.domain import hints
from services.agent.domain.chat import RunContext
from services.agent.domain.errors import FencedError, KnowledgeUnavailableError
from services.agent.domain.messages import Role
from services.agent.domain.models import RunId
from services.agent.domain.places import Places
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Run, RunState, StopReason, Usage, WhenBusy
from services.agent.holding import WorkerLimits
from services.common.clock import now
from services.common.errors import ServiceError, UnavailableError
from tests.agent.office import LEASE, Blocked, Faulty, Hung, Office, reply
from tests.contracts.agent_stores import (
    ALICE,
    AT_ONCE,
    agent_pool,
    asking,
    call,
    postgres_stores,
    result_of,
)

T = TypeVar("T")


@pytest.fixture
async def office(empty_tables: str) -> AsyncIterator[Office]:
    async with agent_pool(empty_tables) as pool:
        office = Office(postgres_stores(pool, queue_limit=50), pool)
        try:
            yield office
        finally:
            await office.close()


async def in_parts(work: Iterable[Awaitable[T]]) -> list[T]:
    """What each gives, twenty at once."""
    gate = asyncio.Semaphore(20)

    async def one(each: Awaitable[T]) -> T:
        async with gate:
            return await each

    return await asyncio.gather(*(one(each) for each in work))


class TestWork:
    async def test_a_waiting_run_is_worked_on(self, office: Office) -> None:
        await office.employ(reply)

        run = await office.say()
        ended = await office.ended(run)

        assert (
            ended.state,
            ended.stop_reason,
            ended.step_count,
        ) == (RunState.FINISHED, StopReason.END_TURN, 1)
        assert [each.text for each in await office.stores.said(run)] == ["Hello", "To Hello"]

    async def test_a_sessions_runs_are_answered_in_their_order_by_many_workers(
        self, office: Office
    ) -> None:
        first = await office.say("0")
        runs = [first, *[await office.say(str(n), after=first) for n in range(1, 10)]]

        for _ in range(3):
            await office.employ(reply)
        for run in runs:
            await office.ended(run)

        answers = [
            each.text for each in await office.stores.said(first) if each.role is Role.ASSISTANT
        ]
        assert [f"To {n}" for n in range(10)] == answers

    async def test_each_run_is_answered_once_by_many_workers(self, office: Office) -> None:
        runs = [await office.say() for _ in range(30)]

        for _ in range(4):
            await office.employ(reply, runs_at_once=3)
        for run in runs:
            await office.ended(run)

        for run in runs:
            assert await office.roles(run) == [Role.USER, Role.ASSISTANT]

    async def test_no_more_runs_are_held_than_there_is_room_for(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked, runs_at_once=2)
        runs = [await office.say() for _ in range(5)]
        await blocked.works_on(*runs[:2])

        blocked.release.set()
        for run in runs:
            await office.ended(run)

        assert blocked.most_at_once == 2

    async def test_a_run_that_lends_its_place_lets_others_go_on(self, office: Office) -> None:
        places, lent, back = Places(1, most_lent=1), asyncio.Event(), asyncio.Event()
        office.hints.poll = 60

        async def work(context: RunContext, journal: RunJournal) -> None:
            if context.turn[0].text == "wait":
                with places.lent() as loan:
                    lent.set()
                    await back.wait()
                    await loan.regain()
            await reply(context, journal)

        await office.employ(work, places=places)
        waiting, *others = [await office.say(text) for text in ("wait", "a", "b")]
        await lent.wait()
        ends = [await office.ended(run) for run in others]
        still = await office.now(waiting)
        back.set()

        assert {RunState.FINISHED} == {end.state for end in ends}
        assert not still.state.final
        assert RunState.FINISHED is (await office.ended(waiting)).state
        assert RunState.FINISHED is (await office.ended(await office.say())).state

    async def test_a_lost_hint_costs_a_poll(self, office: Office) -> None:
        await office.employ(reply)
        office.hints.lost = True

        assert RunState.FINISHED is (await office.ended(await office.say(), within=2)).state

    async def test_a_database_that_is_away_for_a_while_is_waited_for(self, office: Office) -> None:
        queue = Faulty(office.stores.queue)
        queue.down = {"claim"}
        await office.employ(reply, queue=queue)
        run = await office.say()
        await queue.asked["claim"].wait()
        queue.down = set()

        assert RunState.FINISHED is (await office.ended(run)).state


class TestLease:
    async def test_a_run_that_takes_longer_is_kept(self, office: Office) -> None:
        blocked, other = Blocked(), Blocked()
        await office.employ(blocked, lease=LEASE)
        run = await office.say()
        await blocked.works_on(run)
        await office.employ(other)

        await asyncio.sleep(2 * LEASE.total_seconds())
        blocked.release.set()
        await office.ended(run)

        assert other.begun == {}
        assert await office.roles(run) == [Role.USER, Role.ASSISTANT]

    async def test_a_lost_workers_run_goes_on_behind_its_last_message(self, office: Office) -> None:
        run = await office.say()
        lost = office.stores.queue.journal(await office.stores.claimed(lease=LEASE))
        asked = [call("a"), call("b")]
        await lost.append_assistant(asking(*asked), usage=Usage(1, 1))
        await lost.append_tool_results([result_of(asked[0])])
        found: list[RunContext] = []

        async def go_on(context: RunContext, journal: RunJournal) -> None:
            found.append(context)
            await journal.append_tool_results([result_of(asked[1])])
            await reply(context, journal)

        await office.employ(go_on)
        await office.ended(run, within=LEASE.total_seconds() + 1)

        assert [each.role for each in found[0].turn] == [Role.USER, Role.ASSISTANT, Role.TOOL]
        with pytest.raises(FencedError):
            await lost.append_tool_results([result_of(asked[1])])
        said = await office.stores.said(run)
        assert [each.tool_call_id for each in said if each.role is Role.TOOL] == ["a", "b"]

    async def test_who_cannot_renew_stops_before_the_lease_lapses(self, office: Office) -> None:
        """As a worker that is cut off, or a process that was frozen and thaws."""
        queue, blocked, other = Faulty(office.stores.queue), Blocked(), Blocked()
        await office.employ(blocked, queue=queue, lease=LEASE)
        run = await office.say()
        await blocked.works_on(run)

        queue.down = set(Faulty.CALLS)
        async with asyncio.timeout(LEASE.total_seconds() + 0.5):
            while run.id not in blocked.stopped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await office.employ(other)
        await other.works_on(run)
        other.release.set()

        assert RunState.FINISHED is (await office.ended(run)).state
        assert await office.roles(run) == [Role.USER, Role.ASSISTANT]

    async def test_who_was_overtaken_stops(self, office: Office) -> None:
        queue, blocked = Faulty(office.stores.queue), Blocked()
        await office.employ(blocked, queue=queue)
        run = await office.say()
        await blocked.works_on(run)

        queue.overtaken = True
        office.hints.notify(hints.STOPS)
        async with asyncio.timeout(2):
            while run.id not in blocked.stopped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        assert RunState.THINKING is (await office.now(run)).state


class TestHandBack:
    async def test_runs_in_hand_go_on_elsewhere_at_once(self, office: Office) -> None:
        """T-D12: 20 runs, handed back and taken up without a crash being counted."""
        first, second = Blocked(), Blocked()
        leaving = await office.employ(first)
        runs = [await office.say() for _ in range(20)]
        await first.works_on(*runs)
        await office.employ(second)

        start = asyncio.get_running_loop().time()
        await leaving.aclose()
        await second.works_on(*runs)
        print(f"resumed after {asyncio.get_running_loop().time() - start:.2f} s")  # noqa: T201
        assert {0} == {await office.crashes(run) for run in runs}
        second.release.set()
        for run in runs:
            await office.ended(run)
            assert await office.roles(run) == [Role.USER, Role.ASSISTANT]

        assert {run.id for run in runs} == first.stopped

    async def test_leaving_is_no_crash(self, office: Office) -> None:
        run = await office.say()
        for _ in range(3):
            blocked = Blocked()
            leaving = await office.employ(blocked, crash_limit=1)
            await blocked.works_on(run)
            await leaving.aclose()

        assert RunState.IDLE is (await office.now(run)).state
        assert (await office.stores.claimed()).crashes == 0

    async def test_nothing_is_taken_any_more(self, office: Office) -> None:
        leaving = await office.employ(reply)
        await leaving.aclose()

        run = await office.say()

        assert RunState.IDLE is (await office.now(run)).state
        assert run.id == (await office.stores.claimed()).run.id

    async def test_a_run_interrupted_by_the_database_is_tried_again(self, office: Office) -> None:
        failures = [UnavailableError("The database cannot be reached.")]

        async def fail_once(context: RunContext, journal: RunJournal) -> None:
            if failures:
                raise failures.pop()
            await reply(context, journal)

        await office.employ(fail_once, crash_limit=1)

        assert RunState.FINISHED is (await office.ended(await office.say())).state


class TestCancel:
    async def test_a_working_run_is_stopped_within_a_second(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked)
        run = await office.say()
        await blocked.works_on(run)

        asked = await office.cancel(run)
        ended = await office.ended(run, within=1)

        assert asked.cancel_requested
        assert (
            ended.state,
            ended.stop_reason,
            ended.cancel_requested,
        ) == (RunState.CANCELLED, StopReason.CANCELLED, False)
        assert {run.id} == blocked.stopped
        assert await office.roles(run) == [Role.USER, Role.SYSTEM]
        assert ended == await office.cancel(run)

    async def test_it_is_heard_without_a_hint(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked)
        run = await office.say()
        await blocked.works_on(run)

        await office.stores.runs.cancel(ALICE, run.id)

        assert RunState.CANCELLED is (await office.ended(run, within=1)).state

    async def test_open_calls_are_answered_and_late_results_are_not_kept(
        self, office: Office
    ) -> None:
        executing = asyncio.Event()
        late: list[str] = []

        async def execute(context: RunContext, journal: RunJournal) -> None:
            done, slow = call("a"), call("b")
            await journal.append_assistant(asking(done, slow), usage=Usage())
            await journal.append_tool_results([result_of(done)])
            executing.set()
            try:
                await asyncio.sleep(60)
            finally:
                try:
                    await journal.append_tool_results([result_of(slow, "late")])
                except FencedError:
                    late.append("fenced")

        await office.employ(execute)
        run = await office.say()
        await executing.wait()
        await office.cancel(run)
        await office.ended(run, within=1)

        _, _, done, missing, notice = await office.stores.said(run)
        assert (done.tool_call_id, done.text) == ("a", "seen")
        assert (missing.tool_call_id, missing.text) == ("b", "cancelled by the user")
        assert Role.SYSTEM is notice.role
        assert late == ["fenced"]

    async def test_a_loop_that_will_not_stop_is_ended_over_its_head(self, office: Office) -> None:
        begun, release, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        outcomes: list[str] = []

        async def deaf(context: RunContext, journal: RunJournal) -> None:
            begun.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    outcomes.append("asked to stop")
            try:
                await reply(context, journal)
            except FencedError:
                outcomes.append("fenced")
            over.set()

        await office.employ(deaf)
        run = await office.say()
        await begun.wait()

        await office.cancel(run)
        ended = await office.ended(run, within=1.5)
        release.set()
        await over.wait()

        assert RunState.CANCELLED is ended.state
        assert ended == await office.now(run)
        assert {"asked to stop"} == set(outcomes[:-1])
        assert outcomes[-1] == "fenced"
        assert await office.roles(run) == [Role.USER, Role.SYSTEM]

    async def test_a_run_in_any_state_is_cancelled(self, office: Office) -> None:
        for state in (RunState.PLANNING, RunState.THINKING, RunState.EXECUTING):
            begun = asyncio.Event()

            async def stay(
                context: RunContext,
                journal: RunJournal,
                state: RunState = state,
                begun: asyncio.Event = begun,
            ) -> None:
                await journal.set_state(state)
                begun.set()
                await asyncio.sleep(60)

            worker = await office.employ(stay)
            run = await office.say()
            await begun.wait()
            assert state is (await office.now(run)).state
            await office.cancel(run)

            assert RunState.CANCELLED is (await office.ended(run, within=1)).state
            await worker.aclose()

    async def test_who_takes_a_run_that_is_to_be_cancelled_does_so(self, office: Office) -> None:
        run = await office.say()
        await office.stores.claimed(lease=AT_ONCE)
        await office.stores.runs.cancel(ALICE, run.id)
        blocked = Blocked()

        await office.employ(blocked)

        assert RunState.CANCELLED is (await office.ended(run)).state
        assert blocked.begun == {}

    async def test_of_a_storm_of_cancels_each_is_quick_and_final(self, office: Office) -> None:
        """T-D10: 500 runs, half of them amid a tool call, are cancelled at random times.

        A busy machine has six tries for the second.
        """
        hung, chance = Hung(), random.Random(10)
        await office.employ(hung, runs_at_once=500, stop_grace=0.5)
        slowest = timedelta.max
        for _ in range(6):
            if slowest > timedelta(seconds=1):
                slowest = await self.storm(office, hung, chance)

        assert slowest <= timedelta(seconds=1)
        assert {FencedError} == set(hung.late)

    async def storm(self, office: Office, hung: Hung, chance: random.Random) -> timedelta:
        """How long a cancel takes, but for one in a hundred."""
        runs = await in_parts(office.say() for _ in range(500))
        await hung.works_on(*runs)
        asked = dict[RunId, datetime]()

        async def cancel(run: Run) -> Run:
            await asyncio.sleep(chance.uniform(0, 3))
            asked[run.id] = now()
            while True:
                try:
                    return await office.cancel(run)
                except ServiceError as error:  # so many at once; a client would ask again, too
                    await asyncio.sleep(error.retry_after or 0.1)

        await asyncio.gather(*(cancel(run) for run in runs))
        ends = await in_parts(office.ended(run, within=30) for run in runs)
        said = await in_parts(office.stores.said(run) for run in runs)
        took = sorted(end.end_time - asked[end.id] for end in ends if end.end_time)
        print(f"500 cancels: p50 {took[250]}, p99 {took[495]}, all {took[-1]}")  # noqa: T201

        assert {(RunState.CANCELLED, StopReason.CANCELLED)} == {
            (end.state, end.stop_reason) for end in ends
        }
        assert {Role.SYSTEM} == {messages[-1].role for messages in said}
        assert said == await in_parts(office.stores.said(run) for run in runs)
        return took[495]

    async def test_a_run_makes_way_for_a_message_that_interrupts(self, office: Office) -> None:
        blocked = Blocked()

        async def work(context: RunContext, journal: RunJournal) -> None:
            first = context.turn[0].text == "Hello"
            await (blocked if first else reply)(context, journal)

        await office.employ(work)
        old = await office.say()
        await blocked.works_on(old)

        new, _ = await office.stores.runs.start(
            ALICE, old.session_id, "Rather this", when_busy=WhenBusy.INTERRUPT
        )
        office.hints.notify(hints.STOPS)
        stopped, answered = await office.ended(old), await office.ended(new)

        assert (stopped.state, stopped.stop_reason) == (RunState.CANCELLED, StopReason.INTERRUPTED)
        assert RunState.FINISHED is answered.state
        assert [each.text for each in await office.stores.said(old)] == [
            "Hello",
            "Rather this",
            "Stopped, because the user sent another message.",
            "To Rather this",
        ]

    async def test_who_takes_a_run_that_was_rolled_back_ends_it_so(self, office: Office) -> None:
        run = await office.say()
        await office.stores.claimed(lease=AT_ONCE)
        await office.stores.runs.start(ALICE, run.session_id, "No", when_busy=WhenBusy.ROLLBACK)

        await office.employ(reply)
        ended = await office.ended(run)

        assert (ended.stop_reason, ended.discarded) == (StopReason.INTERRUPTED, True)


class TestFailures:
    async def test_a_run_that_is_cancelled_by_nobody_ends_with_a_word(self, office: Office) -> None:
        async def broken(context: RunContext, journal: RunJournal) -> None:
            raise asyncio.CancelledError

        await office.employ(broken)
        run = await office.say()
        failed = await office.ended(run)

        assert (failed.state, failed.stop_reason) == (RunState.ERROR, StopReason.INTERNAL)
        assert await office.roles(run) == [Role.USER, Role.SYSTEM]

    async def test_a_fault_ends_its_run_alone_and_says_so(self, office: Office) -> None:
        async def fail(context: RunContext, journal: RunJournal) -> None:
            if context.turn[0].text == "bad":
                await journal.append_assistant(asking(call("a")), usage=Usage())
                raise ValueError("secret dsn")
            await reply(context, journal)

        await office.employ(fail)
        bad, good = await office.say("bad"), await office.say("good")
        failed, finished = await office.ended(bad), await office.ended(good)

        assert (failed.state, failed.stop_reason) == (RunState.ERROR, StopReason.INTERNAL)
        assert RunState.FINISHED is finished.state
        assert failed.error is not None
        *_, missing, told = await office.stores.said(bad)
        assert (missing.role, missing.tool_call_id) == (Role.TOOL, "a")
        assert (Role.SYSTEM, failed.error.message) == (told.role, told.text)
        assert "secret" not in told.text

    async def test_what_the_loop_should_have_handled_is_a_fault_too(self, office: Office) -> None:
        """Else a run would be handed round for ever."""

        async def fail(context: RunContext, journal: RunJournal) -> None:
            raise KnowledgeUnavailableError("down")

        await office.employ(fail)

        assert StopReason.INTERNAL is (await office.ended(await office.say())).stop_reason

    async def test_a_run_on_which_workers_die_is_given_up(self, office: Office) -> None:
        run = await office.say()
        behind = await office.say("next", after=run)
        for _ in range(3):
            await office.stores.claimed(lease=AT_ONCE)

        await office.employ(reply, crash_limit=3)
        given_up, following = await office.ended(run), await office.ended(behind)

        assert (given_up.state, given_up.stop_reason) == (RunState.ERROR, StopReason.CRASH_LOOP)
        assert RunState.FINISHED is following.state
        assert await office.roles(run) == [Role.USER, Role.USER, Role.SYSTEM, Role.ASSISTANT]

    async def test_after_five_it_is_and_a_retry_lets_it_go_on(self, office: Office) -> None:
        """T-D11: others are unharmed; the one that was given up is put back by one call."""
        poison, other = await office.say("poison"), await office.say("other")
        for _ in range(WorkerLimits().crash_limit):
            claims = await office.stores.queue.claim(lease=AT_ONCE, most=2)
            for claim in claims:
                if claim.run.id == other.id:
                    await office.stores.queue.hand_back(claim)
        assert await office.crashes(poison) == WorkerLimits().crash_limit - 1

        await office.employ(reply, crash_limit=WorkerLimits().crash_limit)
        given_up, finished = await office.ended(poison), await office.ended(other)
        await office.stores.runs.retry(ALICE, poison.id)
        office.hints.notify(hints.RUNS)
        mended = await office.until(poison, lambda run: run.state is RunState.FINISHED)

        assert (given_up.state, given_up.stop_reason) == (RunState.ERROR, StopReason.CRASH_LOOP)
        assert RunState.FINISHED is finished.state
        assert (mended.attempt, mended.error) == (2, None)
        assert await office.crashes(poison) == 0
        assert await office.roles(poison) == [Role.USER, Role.SYSTEM, Role.ASSISTANT]

    async def test_fewer_crashes_are_borne(self, office: Office) -> None:
        run = await office.say()
        for _ in range(2):
            await office.stores.claimed(lease=AT_ONCE)

        await office.employ(reply, crash_limit=3)

        assert RunState.FINISHED is (await office.ended(run)).state


class TestSuspects:
    """Runs that may be what workers were lost to; see `Caution`."""

    async def suspects(self, office: Office, count: int) -> list[Run]:
        """Runs on which as many workers were lost as it takes; the next one will be too many."""
        runs = [await office.say("suspect") for _ in range(count)]
        for _ in range(WorkerLimits().suspected_at):
            await office.stores.queue.claim(lease=AT_ONCE, most=count)
        return runs

    async def test_a_worker_takes_them_one_at_a_time_and_others_do_not_wait(
        self, office: Office
    ) -> None:
        suspects, blocked = await self.suspects(office, 3), Blocked()

        async def work(context: RunContext, journal: RunJournal) -> None:
            suspected = context.turn[0].text == "suspect"
            await (blocked if suspected else reply)(context, journal)

        await office.employ(work)
        for _ in range(3):
            assert RunState.FINISHED is (await office.ended(await office.say())).state
        blocked.release.set()
        for run in suspects:
            assert RunState.FINISHED is (await office.ended(run)).state

        assert blocked.most_at_once == 1

    async def test_the_next_is_taken_as_soon_as_one_has_ended(self, office: Office) -> None:
        office.hints.poll = 60
        suspects = await self.suspects(office, 5)

        await office.employ(reply)

        for run in suspects:
            assert RunState.FINISHED is (await office.ended(run)).state

    async def test_several_workers_take_several(self, office: Office) -> None:
        runs, blocked = await self.suspects(office, 2), Blocked()

        for _ in runs:
            await office.employ(blocked)

        await blocked.works_on(*runs)


class TestAgentDeleted:
    async def test_a_waiting_run_ends_with_a_word(self, office: Office) -> None:
        run = await office.say()
        await office.stores.agents.delete(ALICE, run.agent_id)

        await office.employ(reply)
        ended = await office.ended(run)

        assert (ended.state, ended.stop_reason) == (RunState.ERROR, StopReason.AGENT_DELETED)
        assert await office.roles(run) == [Role.USER, Role.SYSTEM]

    async def test_a_run_under_way_is_stopped(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked)
        run = await office.say()
        await blocked.works_on(run)

        await office.stores.agents.delete(ALICE, run.agent_id)
        office.hints.notify(hints.STOPS)

        assert StopReason.AGENT_DELETED is (await office.ended(run, within=2)).stop_reason
        assert {run.id} == blocked.stopped


class TestSessionDeleted:
    async def test_its_run_is_stopped_and_leaves_nothing(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked)
        run = await office.say()
        await blocked.works_on(run)

        await office.stores.sessions.delete(ALICE, run.session_id)
        office.hints.notify(hints.STOPS)
        async with asyncio.timeout(2):
            while run.id not in blocked.stopped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        assert await office.stores.said(run) == []
