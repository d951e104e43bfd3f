"""Every store keeps the same record of tool calls."""

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import CANCELLED, INTERNAL
from services.agent.domain.ledger import ToolCallRecord, ToolCallState
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import RunId, ToolCallId
from services.agent.domain.run_models import Run, RunState, StopReason, Usage
from services.common.errors import NotFoundError
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
    answer,
    asking,
    call,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
PLANNED, STARTED, DONE, FAILED, UNKNOWN = ToolCallState


def refused(identifier: str, error: str) -> Draft:
    """The result of a call that failed."""
    return Draft(
        Role.TOOL,
        "No.",
        tool_call_id=ToolCallId(identifier),
        tool_name="look",
        metadata={"error": error},
    )


async def ledger(stores: Stores, run: Run) -> list[ToolCallRecord]:
    """All calls of a run."""
    return list(await stores.runs.tool_calls(ALICE, run.id, Page(size=200)))


async def states(stores: Stores, run: Run) -> dict[str, ToolCallState]:
    """Where each call of a run stands."""
    return {each.tool_call_id: each.state for each in await ledger(stores, run)}


class TestLife:
    async def test_calls_are_planned_with_the_message_that_asks_for_them(
        self, stores: Stores
    ) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())

        message = await journal.append_assistant(asking(call("a"), call("b")), usage=Usage())

        first, second = await ledger(stores, run)
        assert (
            first.state,
            first.attempts,
            first.error,
            first.start_time,
            first.end_time,
        ) == (PLANNED, 0, None, None, None)
        assert ("a", "look", 1, message.create_time) == (
            first.tool_call_id,
            first.tool_name,
            first.step,
            first.plan_time,
        )
        assert f"{run.id}:1:b" == second.idempotency_key
        assert (await stores.runs.get(ALICE, run.id)).state is RunState.EXECUTING

    async def test_some_may_be_started_with_it(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())

        await journal.append_assistant(asking(call("a"), call("b")), usage=Usage(), starting=[1])

        assert await states(stores, run) == {"a": PLANNED, "b": STARTED}
        _, started = await ledger(stores, run)
        assert (1, started.plan_time) == (started.attempts, started.start_time)

    async def test_a_result_tells_what_came_of_its_call(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(
            asking(*(call(each) for each in "abcd")), usage=Usage(), starting=[0, 1, 2]
        )

        results = [
            result_of(call("a")),
            refused("b", "timeout"),
            refused("c", "unknown_outcome"),
            refused("d", "tool_call_limit"),
        ]
        messages = await journal.append_tool_results(results[:2])
        messages = [*messages, *await journal.append_tool_results(results[2:])]

        assert await states(stores, run) == {"a": DONE, "b": FAILED, "c": UNKNOWN, "d": FAILED}
        told = await ledger(stores, run)
        assert [each.error for each in told] == [
            None,
            "timeout",
            "unknown_outcome",
            "tool_call_limit",
        ]
        assert [each.create_time for each in messages] == [each.end_time for each in told]
        assert [each.attempts for each in told] == [1, 1, 1, 0]

    async def test_results_are_numbered_in_their_order_and_move_the_run_on(
        self, stores: Stores
    ) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a"), call("b"), call("c")), usage=Usage())

        await journal.append_tool_results([result_of(call("a"))])
        between = await stores.runs.get(ALICE, run.id)
        rest = [result_of(call("b")), result_of(call("c"))]
        last = await journal.append_tool_results(rest, then=RunState.THINKING)

        assert [each.sequence for each in last] == [4, 5]
        assert last == (await stores.said(run))[3:]
        after = await stores.runs.get(ALICE, run.id)
        assert (between.state, after.state) == (RunState.EXECUTING, RunState.THINKING)

    async def test_the_same_id_in_a_later_step_is_another_call(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        for _ in range(2):
            await journal.append_assistant(asking(call("a")), usage=Usage(), starting=[0])
            if len(await stores.said(run)) == 2:
                await journal.append_tool_results([result_of(call("a"))])

        first, second = await ledger(stores, run)

        assert (first.state, second.state) == (DONE, STARTED)
        assert (f"{run.id}:1:a", f"{run.id}:2:a") == (
            first.idempotency_key,
            second.idempotency_key,
        )


class TestRecovery:
    async def test_a_later_worker_is_told_what_was_begun(self, stores: Stores) -> None:
        run = await stores.started()
        lost = stores.queue.journal(await stores.claimed(lease=AT_ONCE))
        calls = [call(each) for each in "abc"]
        await lost.append_assistant(asking(*calls), usage=Usage(), starting=[0, 1])
        await lost.append_tool_results([result_of(calls[0])])

        context = await stores.queue.context(await stores.claimed())

        assert {"b"} == context.started_calls
        assert await states(stores, run) == {"a": DONE, "b": STARTED, "c": PLANNED}

    async def test_a_call_that_is_begun_again_keeps_its_key(self, stores: Stores) -> None:
        run = await stores.started()
        lost = stores.queue.journal(await stores.claimed(lease=AT_ONCE))
        await lost.append_assistant(asking(call("a"), call("b")), usage=Usage(), starting=[0])
        [before, _] = await ledger(stores, run)
        journal = stores.queue.journal(await stores.claimed())

        await journal.start_tool_calls([ToolCallId("a")])

        after, other = await ledger(stores, run)
        assert (STARTED, 2, before.idempotency_key) == (
            after.state,
            after.attempts,
            after.idempotency_key,
        )
        assert before.start_time is not None
        assert after.start_time is not None
        assert before.start_time < after.start_time
        assert PLANNED is other.state
        assert (await stores.runs.get(ALICE, run.id)).state is RunState.EXECUTING

    async def test_one_that_has_its_result_is_never_begun_again(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage(), starting=[0])
        await journal.append_tool_results([result_of(call("a"))])

        await journal.start_tool_calls([ToolCallId("a")])

        [told] = await ledger(stores, run)
        assert (told.state, told.attempts) == (DONE, 1)


class TestEnds:
    @pytest.mark.parametrize(
        ("ending", "error"), [(CANCELLED, "cancelled"), (INTERNAL, "interrupted")]
    )
    async def test_an_open_call_is_unknown_if_it_was_begun(
        self, stores: Stores, ending: Ending, error: str
    ) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        calls = [call(each) for each in "abc"]
        await journal.append_assistant(asking(*calls), usage=Usage(), starting=[0, 1])
        await journal.append_tool_results([result_of(calls[0])])

        *results, _ = await journal.finish(ending)

        assert await states(stores, run) == {"a": DONE, "b": UNKNOWN, "c": FAILED}
        _, *closed = await ledger(stores, run)
        assert [error, error] == [each.error for each in closed]
        assert [each.create_time for each in results] == [each.end_time for each in closed]
        assert [each.tool_call_id for each in results] == ["b", "c"]

    async def test_so_it_is_for_a_run_that_nobody_held(self, stores: Stores) -> None:
        run = await stores.started()
        claim = await stores.claimed()
        await stores.queue.journal(claim).append_assistant(
            asking(call("a"), call("b")), usage=Usage(), starting=[0]
        )
        await stores.queue.hand_back(claim)

        await stores.runs.cancel(ALICE, run.id)

        assert await states(stores, run) == {"a": UNKNOWN, "b": FAILED}

    async def test_calls_go_with_their_session(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())

        await stores.sessions.delete(ALICE, run.session_id)

        with pytest.raises(NotFoundError):
            await stores.runs.get(ALICE, run.id)


class TestList:
    async def test_pages_go_in_the_order_of_the_calls(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        for ids in ("ab", "cde", "f"):
            calls = [call(each) for each in ids]
            await journal.append_assistant(asking(*calls), usage=Usage())
            await journal.append_tool_results([result_of(each) for each in calls])

        pages, after = [], tuple[str, ...]()
        while page := await stores.runs.tool_calls(ALICE, run.id, Page(2, after)):
            pages.append("".join(each.tool_call_id for each in page))
            after = (page[-1].position,)

        assert pages == ["ab", "cd", "ef"]

    async def test_a_run_is_its_users_alone(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())

        for identity in (BOB, ADMIN, STRANGER):
            with pytest.raises(NotFoundError):
                await stores.runs.get(identity, run.id)
            assert await _listed(stores, identity, run.id) == []
        assert await _listed(stores, ALICE, RunId(new_id())) == []

    async def test_a_run_without_calls_has_none(self, stores: Stores) -> None:
        run = await stores.started()
        [claim] = await stores.queue.claim(lease=LEASE, most=1)
        await stores.queue.journal(claim).finish(ENDED, [answer()])

        assert await ledger(stores, run) == []


async def _listed(stores: Stores, identity: Identity, run_id: RunId) -> list[ToolCallRecord]:
    """What somebody is shown of a run's calls, by a store that may also refuse."""
    try:
        return list(await stores.runs.tool_calls(identity, run_id, Page()))
    except NotFoundError:
        return []
