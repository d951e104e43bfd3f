"""Every store lets tenants take turns, and bounds how much waits."""

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import INTERNAL
from services.agent.domain.errors import QueueFullError
from services.agent.domain.models import Session
from services.agent.domain.run_models import Run, RunState, StopReason, WhenBusy
from services.common.identity import Identity
from tests.contracts.agent_stores import (
    ALICE,
    BOB,
    LEASE,
    QUEUE_LIMIT,
    STRANGER,
    Stores,
    answer,
    memory_stores,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
CAROL = Identity("third", "carol")


async def flood(stores: Stores, identity: Identity, count: int) -> list[Run]:
    """Runs of one user that wait, each in a session of its own."""
    return [await stores.started(identity=identity) for _ in range(count)]


async def order(stores: Stores, count: int) -> list[str]:
    """The tenants of the next runs, taken one at a time."""
    return [(await stores.claimed()).run.tenant for _ in range(count)]


class TestTurns:
    async def test_a_tenant_with_much_waiting_does_not_delay_another(self, stores: Stores) -> None:
        """T-X7: whoever comes later is next, however many of one tenant wait."""
        await flood(stores, ALICE, 20)
        late = await stores.started(identity=STRANGER)

        first, second = await stores.queue.claim(lease=LEASE, most=2)

        assert late.id in {first.run.id, second.run.id}

    async def test_tenants_take_turns(self, stores: Stores) -> None:
        for identity in (ALICE, STRANGER, CAROL):
            await flood(stores, identity, 3)

        taken = await order(stores, 9)

        for place in (0, 3, 6):
            assert {"acme", "other", "third"} == set(taken[place : place + 3])

    async def test_who_comes_back_does_not_overtake_those_who_wait(self, stores: Stores) -> None:
        await flood(stores, ALICE, 6)
        taken = []
        for _ in range(3):
            await flood(stores, STRANGER, 1)
            taken += await order(stores, 2)

        assert taken == ["acme", "other"] * 3

    async def test_one_session_has_one_place(self, stores: Stores) -> None:
        """Its other messages wait behind the first, and hold no place of their own."""
        session = await stores.session()
        for _ in range(QUEUE_LIMIT):
            await stores.runs.start(ALICE, session.id, "Hello")
        other = await stores.started()

        taken = [each.run.id for each in await stores.queue.claim(lease=LEASE, most=10)]

        assert len(taken) == 2
        assert other.id in taken

    async def test_within_a_tenant_the_longest_wait_counts(self, stores: Stores) -> None:
        runs = await flood(stores, ALICE, 4)

        assert [run.id for run in runs] == [(await stores.claimed()).run.id for _ in runs]

    async def test_a_run_handed_back_is_next(self, stores: Stores) -> None:
        [first, *_] = await flood(stores, ALICE, 3)
        claim = await stores.claimed()
        await flood(stores, STRANGER, 2)

        await stores.queue.hand_back(claim)

        assert first.id == (await stores.claimed()).run.id


class TestBusySessions:
    async def test_they_keep_nobody_else_from_being_taken(self, stores: Stores) -> None:
        busy = [await stores.started() for _ in range(3)]
        await stores.queue.claim(lease=LEASE, most=3)
        for run in busy:
            await stores.runs.start(ALICE, run.session_id, "More")
        free = await flood(stores, ALICE, 2)

        taken = await stores.queue.claim(lease=LEASE, most=2)

        assert {run.id for run in free} == {claim.run.id for claim in taken}

    async def test_the_next_run_is_in_line_when_the_one_before_ends_in_any_way(
        self, stores: Stores
    ) -> None:
        session = await stores.session()
        runs = [(await stores.runs.start(ALICE, session.id, "Hello"))[0] for _ in range(4)]

        await stores.queue.journal(await stores.claimed()).finish(ENDED, [answer()])
        await stores.runs.cancel(ALICE, runs[2].id)
        second = await stores.claimed()
        assert runs[1].id == second.run.id
        await stores.queue.hand_back(second)
        await stores.runs.cancel(ALICE, runs[1].id)

        assert runs[3].id == (await stores.claimed()).run.id


class TestDepth:
    @pytest.fixture
    def stores(self) -> Stores:
        """Small limits; those of PostgreSQL are tested with its own."""
        return memory_stores(tenant_queue_limit=3)

    async def test_a_tenant_has_only_so_many(self, stores: Stores) -> None:
        await check_depth(stores, limit=3)


async def check_depth(stores: Stores, *, limit: int) -> None:
    """See that a store takes no more than `limit` unfinished runs of a tenant."""
    failed = await stores.started()
    await stores.queue.journal(await stores.claimed()).finish(INTERNAL)
    runs = await flood(stores, ALICE, limit - 1)
    [bobs] = await flood(stores, BOB, 1)
    sessions: dict[Identity, Session] = {
        identity: await stores.session(identity) for identity in (ALICE, BOB, STRANGER)
    }

    for identity in (ALICE, BOB):
        with pytest.raises(QueueFullError) as full:
            await stores.runs.start(identity, sessions[identity].id, "No")
        assert {"limit": str(limit), "scope": "tenant"} == full.value.metadata
        assert full.value.retry_after is not None
    with pytest.raises(QueueFullError, match="tenant"):
        await stores.runs.retry(ALICE, failed.id)
    await stores.runs.start(STRANGER, sessions[STRANGER].id, "Hello")

    await stores.runs.start(BOB, bobs.session_id, "New", when_busy=WhenBusy.INTERRUPT)
    await stores.runs.cancel(ALICE, runs[0].id)
    await stores.runs.start(ALICE, sessions[ALICE].id, "Yes")
