"""T-D9: what becomes of a session's runs when another message comes, in whatever state they are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CANCELLED, INTERRUPTED
from services.agent.domain.errors import FencedError, QueueFullError, RunInProgressError
from services.agent.domain.messages import Message, Role
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim, Standing
from services.agent.domain.run_models import Run, RunState, StopReason, Usage, WhenBusy
from services.common.paging import Page
from tests.contracts.agent_stores import (
    ALICE,
    AT_ONCE,
    LEASE,
    QUEUE_LIMIT,
    Stores,
    answer,
    asking,
    call,
    request_key,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)


@dataclass(frozen=True, slots=True)
class Before:
    """A run when another message comes, with the hold on it where there is one."""

    run: Run
    claim: Claim | None = None


async def idle(stores: Stores) -> Before:
    return Before(await stores.started())


async def planning(stores: Stores) -> Before:
    run = await stores.started()
    return Before(run, await stores.claimed())


async def thinking(stores: Stores) -> Before:
    before = await planning(stores)
    assert before.claim is not None
    await stores.queue.journal(before.claim).set_state(RunState.THINKING)
    return before


async def executing(stores: Stores) -> Before:
    """Of three calls one has its result, one is begun, and one is not."""
    before = await planning(stores)
    assert before.claim is not None
    journal = stores.queue.journal(before.claim)
    calls = [call("done"), call("begun"), call("planned")]
    await journal.append_assistant(asking(*calls), usage=Usage(), starting=[0, 1])
    await journal.append_tool_results([result_of(calls[0])])
    return before


async def handed_back(stores: Stores) -> Before:
    """Waiting for another worker, with calls that have no result."""
    before = await executing(stores)
    assert before.claim is not None
    await stores.queue.hand_back(before.claim)
    return Before(before.run)


async def cancelling(stores: Stores) -> Before:
    before = await executing(stores)
    await stores.runs.cancel(ALICE, before.run.id)
    return before


async def ended(stores: Stores) -> Before:
    before = await planning(stores)
    assert before.claim is not None
    await stores.queue.journal(before.claim).finish(ENDED, [answer()])
    return Before(before.run)


STATES: dict[str, Callable[[Stores], Awaitable[Before]]] = {
    each.__name__: each
    for each in (idle, planning, thinking, executing, handed_back, cancelling, ended)
}

WAITS, REFUSED = "the message waits behind it", "the message is refused"
ENDS, STOPS = "it ends at once", "its worker is asked to stop"
STAYS = "it has ended and stays as it is"
OUTCOMES = {
    WhenBusy.ENQUEUE: {
        "idle": WAITS,
        "planning": WAITS,
        "thinking": WAITS,
        "executing": WAITS,
        "handed_back": WAITS,
        "cancelling": WAITS,
        "ended": STAYS,
    },
    WhenBusy.REJECT: {
        "idle": REFUSED,
        "planning": REFUSED,
        "thinking": REFUSED,
        "executing": REFUSED,
        "handed_back": REFUSED,
        "cancelling": REFUSED,
        "ended": STAYS,
    },
    WhenBusy.INTERRUPT: {
        "idle": ENDS,
        "planning": STOPS,
        "thinking": STOPS,
        "executing": STOPS,
        "handed_back": ENDS,
        "cancelling": STOPS,
        "ended": STAYS,
    },
    WhenBusy.ROLLBACK: {
        "idle": ENDS,
        "planning": STOPS,
        "thinking": STOPS,
        "executing": STOPS,
        "handed_back": ENDS,
        "cancelling": STOPS,
        "ended": STAYS,
    },
}
TABLE = [
    pytest.param(mode, state, outcome, id=f"{mode.value}-{state}")
    for mode, outcomes in OUTCOMES.items()
    for state, outcome in outcomes.items()
]


async def work_off(stores: Stores, before: Before) -> None:
    """Let its worker bring the run to its end, however it has to."""
    if before.claim is None:
        return
    standing = (await stores.queue.standing([before.claim])).get(before.run.id)
    journal = stores.queue.journal(before.claim)
    if standing is None:
        return
    if standing.cancel_reason is None:
        await journal.finish(ENDED, [answer()])
    else:
        interrupted = standing.cancel_reason is StopReason.INTERRUPTED
        await journal.finish(INTERRUPTED if interrupted else CANCELLED)


def open_calls(messages: list[Message]) -> set[ToolCallId]:
    """Calls without a result."""
    asked = {each.id for message in messages for each in message.tool_calls}
    return asked - {message.tool_call_id for message in messages if message.tool_call_id}


class TestTable:
    """T-D9: each way to treat a busy session, in each state of its run."""

    @pytest.mark.parametrize(("mode", "state", "outcome"), TABLE)
    async def test_the_outcome_is_the_documented_one(
        self, stores: Stores, mode: WhenBusy, state: str, outcome: str
    ) -> None:
        before = await STATES[state](stores)
        was = await stores.runs.get(ALICE, before.run.id)
        session_id = before.run.session_id

        if outcome is REFUSED:
            with pytest.raises(RunInProgressError) as refused:
                await stores.runs.start(ALICE, session_id, "New", when_busy=mode)
            assert {"run_id": before.run.id} == refused.value.metadata
            assert was == await stores.runs.get(ALICE, before.run.id)
            return
        new, message = await stores.runs.start(ALICE, session_id, "New", when_busy=mode)

        first = await stores.runs.get(ALICE, before.run.id)
        if outcome in {WAITS, STAYS}:
            assert was == first
        else:
            why = StopReason.CANCELLED if state == "cancelling" else StopReason.INTERRUPTED
            told = first.stop_reason if outcome is ENDS else first.cancel_reason
            assert why is told
            assert (outcome is ENDS) is first.state.final
            assert (mode is WhenBusy.ROLLBACK) is first.discarded
        await self.check_the_end(stores, before, new, message)

    async def check_the_end(
        self, stores: Stores, before: Before, new: Run, message: Message
    ) -> None:
        """The old run ends without a dangling call, then the new one is given out."""
        if before.claim is None and not (await self.state(stores, before)).final:
            before = Before(before.run, await stores.claimed())
        await work_off(stores, before)
        claim = await stores.claimed()

        assert (new.id, message.id) == (claim.run.id, claim.run.message_id)
        assert (await self.state(stores, before)).final
        said = await stores.said(before.run)
        assert [each.sequence for each in said] == list(range(1, len(said) + 1))
        assert open_calls(said) == set()
        session = await stores.sessions.get(ALICE, new.session_id)
        assert (len(said), new.id) == (session.last_sequence, session.active_run_id)

    async def state(self, stores: Stores, before: Before) -> RunState:
        return (await stores.runs.get(ALICE, before.run.id)).state


class TestInterrupt:
    async def test_all_runs_of_the_session_end_in_their_order(self, stores: Stores) -> None:
        before = await executing(stores)
        session_id = before.run.session_id
        waiting = [(await stores.runs.start(ALICE, session_id, text))[0] for text in ("two", "six")]

        new, message = await stores.runs.start(
            ALICE, session_id, "New", when_busy=WhenBusy.INTERRUPT
        )

        for run in waiting:
            told = await stores.runs.get(ALICE, run.id)
            assert (told.state, told.stop_reason) == (RunState.CANCELLED, StopReason.INTERRUPTED)
        said = await stores.said(before.run)
        assert [each.run_id for each in said[-3:]] == [*(run.id for run in waiting), new.id]
        assert message == said[-1]
        assert await stores.queue.claim(lease=LEASE, most=5) == []
        await work_off(stores, before)
        assert new.id == (await stores.claimed()).run.id

    async def test_what_was_done_is_kept_and_shown_to_the_next_run(self, stores: Stores) -> None:
        before = await executing(stores)
        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.INTERRUPT)
        await work_off(stores, before)

        context = await stores.queue.context(await stores.claimed())

        texts = [(each.role, each.tool_call_id, each.text) for each in context.history[2:]]
        assert texts == [
            (Role.TOOL, "done", "seen"),
            (Role.TOOL, "begun", "cancelled by the user"),
            (Role.TOOL, "planned", "cancelled by the user"),
            (Role.SYSTEM, None, "Stopped, because the user sent another message."),
        ]
        assert not any(each.discarded for each in context.history)

    async def test_its_worker_learns_why_and_can_end_it_in_no_other_way(
        self, stores: Stores
    ) -> None:
        before = await thinking(stores)
        assert before.claim is not None
        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.INTERRUPT)

        told = {before.run.id: Standing(StopReason.INTERRUPTED, agent_gone=False)}
        assert told == await stores.queue.standing([before.claim])
        journal = stores.queue.journal(before.claim)
        for ending in (ENDED, CANCELLED):
            with pytest.raises(FencedError):
                await journal.finish(ending, [answer()])
        [notice] = await journal.finish(INTERRUPTED)
        assert notice.role is Role.SYSTEM

    async def test_a_full_session_is_interrupted_all_the_same(self, stores: Stores) -> None:
        before = await planning(stores)
        for _ in range(QUEUE_LIMIT - 1):
            await stores.runs.start(ALICE, before.run.session_id, "Hello")
        with pytest.raises(QueueFullError):
            await stores.runs.start(ALICE, before.run.session_id, "No")

        new, _ = await stores.runs.start(
            ALICE, before.run.session_id, "New", when_busy=WhenBusy.INTERRUPT
        )

        await work_off(stores, before)
        assert new.id == (await stores.claimed()).run.id

    async def test_a_repeat_interrupts_nothing(self, stores: Stores) -> None:
        first = await stores.started()
        key = request_key("x")
        started = await stores.runs.start(
            ALICE, first.session_id, "New", when_busy=WhenBusy.INTERRUPT, request=key
        )
        claim = await stores.claimed()

        again = await stores.runs.start(
            ALICE, first.session_id, "New", when_busy=WhenBusy.INTERRUPT, request=key
        )

        assert (started[0].id, started[1]) == (again[0].id, again[1])
        assert (await stores.queue.standing([claim]))[claim.run.id].cancel_reason is None

    async def test_other_sessions_go_on(self, stores: Stores) -> None:
        other, before = await thinking(stores), await thinking(stores)
        assert other.claim is not None

        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.ROLLBACK)

        assert (await stores.queue.standing([other.claim]))[other.run.id].cancel_reason is None


class TestRollback:
    async def test_all_messages_are_discarded_but_stay_readable(self, stores: Stores) -> None:
        before = await executing(stores)
        session_id = before.run.session_id
        await stores.runs.start(ALICE, session_id, "two")

        _, message = await stores.runs.start(ALICE, session_id, "New", when_busy=WhenBusy.ROLLBACK)
        await work_off(stores, before)

        said = await stores.said(before.run)
        assert [message] == [each for each in said if not each.discarded]
        assert [each.sequence for each in said] == list(range(1, len(said) + 1))
        newest_first = await stores.messages.before(
            ALICE, session_id, None, most=1000, max_bytes=10**9
        )
        assert said[::-1] == list(newest_first.items)

    async def test_no_model_is_shown_them_again(self, stores: Stores) -> None:
        kept = await ended(stores)
        session_id = kept.run.session_id
        await stores.runs.start(ALICE, session_id, "gone")
        rolled_back = Before(kept.run, await stores.claimed())
        await stores.runs.start(ALICE, session_id, "New", when_busy=WhenBusy.ROLLBACK)
        assert rolled_back.claim is not None
        await stores.queue.journal(rolled_back.claim).finish(INTERRUPTED)

        context = await stores.queue.context(await stores.claimed())

        assert [each.text for each in context.history] == ["Hello", "Hello, Alice."]
        assert [each.text for each in context.turn] == ["New"]

    async def test_the_last_words_of_a_run_are_given_back_as_discarded(
        self, stores: Stores
    ) -> None:
        before = await executing(stores)
        assert before.claim is not None
        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.ROLLBACK)

        last = await stores.queue.journal(before.claim).finish(INTERRUPTED)

        assert [each.discarded for each in last] == [True, True, True]

    async def test_it_is_told_at_once_and_stays_told(self, stores: Stores) -> None:
        before = await thinking(stores)
        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.ROLLBACK)
        asked = await stores.runs.get(ALICE, before.run.id)
        await work_off(stores, before)

        [_, ended_] = await stores.runs.list(ALICE, before.run.session_id, Page())

        assert (asked.state, asked.discarded, asked.cancel_requested) == (
            RunState.THINKING,
            True,
            True,
        )
        assert (ended_.state, ended_.discarded, ended_.stop_reason) == (
            RunState.CANCELLED,
            True,
            StopReason.INTERRUPTED,
        )


CANCEL, INTERRUPT, ROLLBACK = "cancel", WhenBusy.INTERRUPT, WhenBusy.ROLLBACK


class TestPrecedence:
    """The first decides the stop reason; a rollback discards in any case."""

    @pytest.mark.parametrize(
        ("wishes", "reason", "discarded"),
        [
            ([CANCEL, INTERRUPT], StopReason.CANCELLED, False),
            ([CANCEL, ROLLBACK], StopReason.CANCELLED, True),
            ([INTERRUPT, CANCEL], StopReason.INTERRUPTED, False),
            ([INTERRUPT, ROLLBACK], StopReason.INTERRUPTED, True),
            ([ROLLBACK, CANCEL], StopReason.INTERRUPTED, True),
            ([ROLLBACK, INTERRUPT, CANCEL], StopReason.INTERRUPTED, True),
            ([CANCEL, CANCEL, ROLLBACK, ROLLBACK], StopReason.CANCELLED, True),
        ],
    )
    async def test_of_wishes_for_a_held_run(
        self,
        stores: Stores,
        wishes: list[str | WhenBusy],
        reason: StopReason,
        discarded: bool,
    ) -> None:
        before = await executing(stores)
        for wish in wishes:
            if isinstance(wish, WhenBusy):
                await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=wish)
            else:
                await stores.runs.cancel(ALICE, before.run.id)
        await work_off(stores, before)

        told = await stores.runs.get(ALICE, before.run.id)

        assert (RunState.CANCELLED, reason, discarded) == (
            told.state,
            told.stop_reason,
            told.discarded,
        )
        own = [each for each in await stores.said(told) if each.run_id == told.id]
        assert {discarded} == {each.discarded for each in own}

    async def test_a_wish_outlives_its_worker(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.claimed(lease=AT_ONCE)
        await stores.runs.start(ALICE, run.session_id, "New", when_busy=WhenBusy.ROLLBACK)

        again = await stores.claimed()

        assert (run.id, StopReason.INTERRUPTED, True) == (
            again.run.id,
            again.run.cancel_reason,
            again.run.discarded,
        )

    async def test_an_ended_run_is_not_discarded(self, stores: Stores) -> None:
        before = await ended(stores)

        await stores.runs.start(ALICE, before.run.session_id, "New", when_busy=WhenBusy.ROLLBACK)

        assert not (await stores.runs.get(ALICE, before.run.id)).discarded
        assert not any(each.discarded for each in await stores.said(before.run))
