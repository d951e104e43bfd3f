import pytest

from services.agent.domain import hints
from services.agent.domain.endings import INTERNAL
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import WhenBusy
from services.agent.domain.runs import Runs
from services.common.errors import NotFoundError
from services.common.ids import new_id
from services.common.paging import Page
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, Stores, memory_stores


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


@pytest.fixture
def notified() -> LocalHints:
    return LocalHints()


@pytest.fixture
def runs(stores: Stores, notified: LocalHints) -> Runs:
    return Runs(stores.runs, sessions=stores.sessions, notifier=notified)


class TestStart:
    async def test_watchers_and_workers_are_told(
        self, stores: Stores, runs: Runs, notified: LocalHints
    ) -> None:
        session = await stores.session()

        run, message = await runs.start(ALICE, session.id, "Hello")

        assert run.message_id == message.id
        assert (notified.sent[session.id], notified.sent[hints.RUNS]) == (1, 1)

    @pytest.mark.parametrize("when_busy", [WhenBusy.INTERRUPT, WhenBusy.ROLLBACK])
    async def test_the_worker_of_a_run_that_makes_way_is_told(
        self, stores: Stores, runs: Runs, notified: LocalHints, when_busy: WhenBusy
    ) -> None:
        run = await stores.started()
        await stores.claimed()

        await runs.start(ALICE, run.session_id, "Hello", when_busy=when_busy)

        assert notified.sent[hints.STOPS] == 1


class TestRetry:
    async def test_watchers_and_workers_are_told(
        self, stores: Stores, runs: Runs, notified: LocalHints
    ) -> None:
        run = await stores.started()
        await stores.queue.journal(await stores.claimed()).finish(INTERNAL)

        await runs.retry(ALICE, run.id)

        assert (notified.sent[run.session_id], notified.sent[hints.RUNS]) == (1, 1)


class TestToolCalls:
    async def test_others_are_told_there_is_no_such_run(self, stores: Stores, runs: Runs) -> None:
        run = await stores.started()

        assert (await runs.tool_calls(ALICE, run.id, Page())).items == []
        for identity, run_id in ((BOB, run.id), (ALICE, RunId(new_id()))):
            with pytest.raises(NotFoundError):
                await runs.tool_calls(identity, run_id, Page())


class TestList:
    async def test_others_are_told_there_is_no_such_session(
        self, stores: Stores, runs: Runs
    ) -> None:
        run = await stores.started()

        assert [run] == (await runs.list(ALICE, run.session_id, Page())).items
        for identity, session_id in ((BOB, run.session_id), (ALICE, SessionId(new_id()))):
            with pytest.raises(NotFoundError):
                await runs.list(identity, session_id, Page())


class TestCancel:
    async def test_the_worker_of_a_held_run_is_told(
        self, stores: Stores, runs: Runs, notified: LocalHints
    ) -> None:
        run = await stores.started()
        await stores.claimed()

        await runs.cancel(ALICE, run.id)

        assert (notified.sent[run.session_id], notified.sent[hints.STOPS]) == (1, 1)

    async def test_the_next_run_may_begin_after_a_waiting_one_was_cancelled(
        self, stores: Stores, runs: Runs, notified: LocalHints
    ) -> None:
        run = await stores.started()

        await runs.cancel(ALICE, run.id)

        assert (notified.sent[run.session_id], notified.sent[hints.RUNS]) == (1, 1)
