"""Workers over the queue in PostgreSQL, with loops that the tests write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from services.agent.domain import hints
from services.agent.domain.chat import Ending, RunContext
from services.agent.domain.errors import FencedError, KnowledgeUnavailableError
from services.agent.domain.messages import Role
from services.agent.domain.models import RunId
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Claim, RunQueue, Standing
from services.agent.domain.run_models import Run, RunState, StopReason, Usage
from services.agent.worker import Worker, WorkerLimits
from services.common.errors import UnavailableError
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import (
    ALICE,
    AT_ONCE,
    Stores,
    agent_pool,
    answer,
    asking,
    call,
    postgres_stores,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
LEASE = timedelta(seconds=0.6)
ENOUGH = 10.0

Turns = Callable[[RunContext, RunJournal], Awaitable[object]]


async def reply(context: RunContext, journal: RunJournal) -> None:
    """Answers at once."""
    await journal.finish(ENDED, [answer(f"To {context.turn[0].text}")], steps=1)


class Blocked:
    """A loop that gets to work and then waits until it is let go, or stopped."""

    def __init__(self, *before: str) -> None:
        self.begun: dict[RunId, asyncio.Event] = {}
        self.stopped: set[RunId] = set()
        self.most_at_once = 0
        self.release = asyncio.Event()
        self._at_once = 0

    async def __call__(self, context: RunContext, journal: RunJournal) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await journal.set_state(RunState.THINKING)
            self.event(context.run.id).set()
            await self.release.wait()
            await reply(context, journal)
        except asyncio.CancelledError:
            self.stopped.add(context.run.id)
            raise
        finally:
            self._at_once -= 1

    def event(self, run_id: RunId) -> asyncio.Event:
        """Set once the run is being worked on."""
        return self.begun.setdefault(run_id, asyncio.Event())

    async def works_on(self, *runs: Run) -> None:
        """Wait until these runs are being worked on."""
        async with asyncio.timeout(ENOUGH):
            for run in runs:
                await self.event(run.id).wait()


class Office:
    """Stores, hints, and workers that come and go."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.hints = LocalHints(poll=0.2)
        self._stack = AsyncExitStack()

    async def employ(
        self, turns: Turns, *, queue: RunQueue | None = None, **limits: Any
    ) -> AsyncExitStack:
        """A worker that works until the stack, or the office, is closed."""
        worker = Worker(
            queue or self.stores.queue,
            turns,
            listener=self.hints,
            notifier=self.hints,
            limits=WorkerLimits(**{"lease": LEASE, "stop_grace": 0.2, **limits}),
        )
        stack = await self._stack.enter_async_context(AsyncExitStack())
        await stack.enter_async_context(worker.working())
        return stack

    async def say(self, text: str = "Hello", *, after: Run | None = None) -> Run:
        """A waiting run, in a session of its own or behind another."""
        if after is None:
            run = await self.stores.started(text)
        else:
            run, _ = await self.stores.runs.start(ALICE, after.session_id, text)
        self.hints.notify(hints.RUNS)
        return run

    async def cancel(self, run: Run) -> Run:
        """The run after it was asked to stop."""
        cancelled = await self.stores.runs.cancel(ALICE, run.id)
        self.hints.notify(hints.STOPS)
        return cancelled

    async def now(self, run: Run) -> Run:
        """The run as it is now."""
        return await self.stores.runs.get(ALICE, run.id)

    async def ended(self, run: Run, *, within: float = ENOUGH) -> Run:
        """The run once it has ended."""
        return await self.until(run, lambda each: each.state.final, within=within)

    async def until(
        self, run: Run, condition: Callable[[Run], bool], *, within: float = ENOUGH
    ) -> Run:
        """The run once something is true of it."""
        async with asyncio.timeout(within):
            while not condition(current := await self.now(run)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return current

    async def roles(self, run: Run) -> list[Role]:
        """Who speaks in the run's session, in order."""
        return [message.role for message in await self.stores.said(run)]

    async def close(self) -> None:
        """Let all workers go."""
        await self._stack.aclose()


@pytest.fixture
async def office(empty_tables: str) -> AsyncIterator[Office]:
    async with agent_pool(empty_tables) as pool:
        office = Office(postgres_stores(pool, queue_limit=50))
        try:
            yield office
        finally:
            await office.close()


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
        await office.employ(blocked)
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
        await office.ended(run, within=LEASE.total_seconds() + 2)

        assert [each.role for each in found[0].turn] == [Role.USER, Role.ASSISTANT, Role.TOOL]
        with pytest.raises(FencedError):
            await lost.append_tool_results([result_of(asked[1])])
        said = await office.stores.said(run)
        assert [each.tool_call_id for each in said if each.role is Role.TOOL] == ["a", "b"]

    async def test_who_cannot_renew_stops_before_the_lease_lapses(self, office: Office) -> None:
        """As a worker that is cut off, or a process that was frozen and thaws."""
        queue, blocked, other = Faulty(office.stores.queue), Blocked(), Blocked()
        await office.employ(blocked, queue=queue)
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
        await office.employ(blocked, queue=queue, lease=timedelta(seconds=30))
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
        first, second = Blocked(), Blocked()
        leaving = await office.employ(first, lease=timedelta(seconds=30))
        runs = [await office.say() for _ in range(20)]
        await first.works_on(*runs)
        await office.employ(second, lease=timedelta(seconds=30))

        async with asyncio.timeout(1):
            await leaving.aclose()
            await second.works_on(*runs)
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
        await office.employ(blocked, lease=timedelta(seconds=30))
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
        await office.employ(blocked, lease=timedelta(seconds=30))
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

    async def test_many_cancels_at_once_are_all_quick(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked, lease=timedelta(seconds=30), runs_at_once=40)
        runs = [await office.say() for _ in range(40)]
        await blocked.works_on(*runs)

        async with asyncio.timeout(2):
            await asyncio.gather(*(office.cancel(run) for run in runs))
            ends = await asyncio.gather(*(office.ended(run) for run in runs))

        assert {RunState.CANCELLED} == {end.state for end in ends}


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

    async def test_fewer_crashes_are_borne(self, office: Office) -> None:
        run = await office.say()
        for _ in range(2):
            await office.stores.claimed(lease=AT_ONCE)

        await office.employ(reply, crash_limit=3)

        assert RunState.FINISHED is (await office.ended(run)).state


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
        await office.employ(blocked, lease=timedelta(seconds=30))
        run = await office.say()
        await blocked.works_on(run)

        await office.stores.agents.delete(ALICE, run.agent_id)
        office.hints.notify(hints.STOPS)

        assert StopReason.AGENT_DELETED is (await office.ended(run, within=2)).stop_reason
        assert {run.id} == blocked.stopped


class TestSessionDeleted:
    async def test_its_run_is_stopped_and_leaves_nothing(self, office: Office) -> None:
        blocked = Blocked()
        await office.employ(blocked, lease=timedelta(seconds=30))
        run = await office.say()
        await blocked.works_on(run)

        await office.stores.sessions.delete(ALICE, run.session_id)
        office.hints.notify(hints.STOPS)
        async with asyncio.timeout(2):
            while run.id not in blocked.stopped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        assert await office.stores.said(run) == []


class Faulty:
    """A queue whose calls fail as if the database were away, or as if another had the runs."""

    CALLS = ("claim", "renew", "standing", "hand_back")

    def __init__(self, queue: RunQueue) -> None:
        self._queue = queue
        self.down: set[str] = set()
        self.overtaken = False
        self.asked = {name: asyncio.Event() for name in self.CALLS}

    async def claim(self, *, lease: timedelta, most: int) -> Sequence[Claim]:
        self._fail("claim")
        return await self._queue.claim(lease=lease, most=most)

    async def context(self, claim: Claim) -> RunContext:
        return await self._queue.context(claim)

    def journal(self, claim: Claim) -> RunJournal:
        return self._queue.journal(claim)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        self._fail("renew")
        return {} if self.overtaken else await self._queue.renew(claims, lease=lease)

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        self._fail("standing")
        return {} if self.overtaken else await self._queue.standing(claims)

    async def hand_back(self, claim: Claim) -> None:
        self._fail("hand_back")
        await self._queue.hand_back(claim)

    def _fail(self, name: str) -> None:
        self.asked[name].set()
        if name in self.down:
            raise UnavailableError("The database cannot be reached.")
