"""What of the queue only PostgreSQL can get wrong: who gets a run, and what it costs to look."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from services.agent.domain import outcome
from services.agent.domain.chat import Ending
from services.agent.domain.endings import INTERNAL
from services.agent.domain.errors import FencedError
from services.agent.domain.models import RunId, Session
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import RunState, StopReason, Usage, WhenBusy
from services.agent.store.postgres import contexts, journal, queue
from services.common.db import Pool, PooledConnection, connection
from services.common.errors import ServiceError
from services.common.ids import new_id
from tests.agent.line import check_line
from tests.contracts.agent_stores import (
    ALICE,
    LEASE,
    Stores,
    agent_pool,
    answer,
    asking,
    call,
    postgres_stores,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)

_SESSIONS = """
INSERT INTO chat_session (id, tenant, user_id, agent_id, title, create_time, update_time)
SELECT gen_random_uuid(), 'acme', 'alice', gen_random_uuid(), '', now(), now()
FROM generate_series(1, 500)
"""
_RUNS = """
INSERT INTO run (
    id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time, end_time,
    stop_reason)
SELECT gen_random_uuid(), id, tenant, user_id, agent_id, gen_random_uuid(), turn, 'finished',
    now(), now(), 'end_turn'
FROM chat_session, generate_series(1, 10) AS turn
"""
_WAITING = """
INSERT INTO run (
    id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time, place)
SELECT gen_random_uuid(), id, tenant, user_id, agent_id, gen_random_uuid(), turn, 'idle', now(),
    CASE WHEN turn = 1 THEN row_number() OVER () END
FROM chat_session, generate_series(1, 20) AS turn
WHERE NOT EXISTS (SELECT FROM run WHERE run.session_id = chat_session.id)
"""
_FIRST_RUNS = """
INSERT INTO run (
    id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time, place)
SELECT gen_random_uuid(), id, tenant, user_id, agent_id, gen_random_uuid(), 1, 'idle', now(),
    row_number() OVER ()
FROM chat_session
"""


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables, max_size=20) as pool:
        yield pool


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return postgres_stores(pool, queue_limit=100)


class TestClaim:
    async def test_many_at_once_get_each_run_once(self, stores: Stores) -> None:
        runs = [await stores.started() for _ in range(40)]

        taken = await asyncio.gather(*(stores.queue.claim(lease=LEASE, most=3) for _ in range(20)))

        ids = [claim.run.id for claims in taken for claim in claims]
        assert sorted(run.id for run in runs) == sorted(ids)

    async def test_many_at_once_hold_one_run_of_a_session(self, stores: Stores) -> None:
        """While its runs are accepted, taken and ended as fast as can be."""
        session = await stores.session()
        most_at_once = at_once = 0
        done: list[int] = []

        async def work() -> None:
            nonlocal most_at_once, at_once
            while len(done) < 30:
                for claim in await stores.queue.claim(lease=LEASE, most=2):
                    at_once += 1
                    most_at_once = max(most_at_once, at_once)
                    await asyncio.sleep(0)
                    done.append(claim.run.turn)
                    at_once -= 1
                    await stores.queue.journal(claim).finish(ENDED, [answer()])

        async def say() -> None:
            for _ in range(10):
                await stores.runs.start(ALICE, session.id, "x")

        async with asyncio.timeout(30):
            await asyncio.gather(*(say() for _ in range(3)), *(work() for _ in range(4)))

        assert most_at_once == 1
        assert done == sorted(done)
        assert len(await stores.said(session)) == 60

    async def test_looking_for_work_reads_no_runs_that_have_ended(
        self, pool: Pool, stores: Stores
    ) -> None:
        async with connection(pool) as lent:
            await lent.execute(_SESSIONS)
            await lent.execute(_RUNS)
            await lent.execute("ANALYZE")
            await stores.started()
            assert await rows_of_a_claim(lent, most=10) <= 10

    async def test_looking_for_work_reads_no_more_however_much_waits(
        self, pool: Pool, stores: Stores
    ) -> None:
        """10,000 runs wait, nine tenths of them behind others of their session, some held."""
        for _ in range(20):
            await stores.started()
        await stores.queue.claim(lease=LEASE, most=20)
        async with connection(pool) as lent:
            await lent.execute(_SESSIONS)
            await lent.execute(_WAITING)
            await lent.execute("ANALYZE")

            assert await rows_of_a_claim(lent, most=10) <= 100
            await lent.execute("SET plan_cache_mode = force_generic_plan")
            assert await rows_of_a_claim(lent, most=10) <= 100

    async def test_taking_runs_reads_no_others_although_many_of_them_wait(
        self, pool: Pool, stores: Stores
    ) -> None:
        """The first ones of 2,000 sessions; a plan for a tenth of them would read them all."""
        async with connection(pool) as lent:
            for _ in range(4):
                await lent.execute(_SESSIONS)
            await lent.execute(_FIRST_RUNS)
            await lent.execute("ANALYZE")

            assert await rows_of_a_claim(lent, most=10) <= 100
            await lent.execute("SET plan_cache_mode = force_generic_plan")
            assert await rows_of_a_claim(lent, most=10) <= 100

    @pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
    async def test_no_others_in_hand_are_read_although_none_were_when_the_table_was_analysed(
        self, pool: Pool, stores: Stores, plans: str
    ) -> None:
        async with connection(pool) as lent:
            for _ in range(4):
                await lent.execute(_SESSIONS)
            await lent.execute(_FIRST_RUNS)
            await lent.execute("VACUUM ANALYZE run")
            await stores.queue.claim(lease=timedelta(hours=1), most=1000)
            [claim] = await stores.queue.claim(lease=LEASE, most=1)

            await lent.execute(f"SET plan_cache_mode = {plans}")
            assert await rows_of_a_claim(lent, most=10) <= 100
            key = (claim.run.id, claim.epoch)
            keys = ([claim.run.id], [claim.epoch])
            assert await rows_of(lent, journal._SET_STATE, *key, "thinking", None) <= 10
            assert await rows_of(lent, queue._RENEW, *keys, LEASE) <= 10
            assert await rows_of(lent, queue._STANDING, *keys) <= 10
            assert await rows_of(lent, contexts._HELD, *keys) <= 10


class TestRaces:
    async def test_two_runs_of_a_session_in_line_hold_up_nobody(
        self, pool: Pool, stores: Stores
    ) -> None:
        """It must not be so; if it were, one of them would be taken, and all others too."""
        first = await stores.started()
        second, _ = await stores.runs.start(ALICE, first.session_id, "More")
        others = [await stores.started() for _ in range(3)]
        async with connection(pool) as lent:
            await lent.execute("UPDATE run SET place = 0 WHERE id = $1", second.id)

        taken = []
        while claims := await stores.queue.claim(lease=LEASE, most=10):
            taken += [claim.run.id for claim in claims]

        assert sorted(taken) == sorted([first.id, *(run.id for run in others)])

    async def test_the_line_stays_whole_whatever_happens_at_once(
        self, pool: Pool, stores: Stores
    ) -> None:
        """Messages of all kinds, wishes to stop, retries, hand-backs and crashes, mixed."""
        traffic = Traffic(stores, [await stores.session() for _ in range(4)])
        until = asyncio.get_running_loop().time() + 3

        await asyncio.gather(*(traffic.flow(until) for _ in range(12)))

        assert len(traffic.begun) > 50
        await check_line(pool)
        async with connection(pool) as lent:
            await lent.execute("UPDATE run SET lease_until = now() WHERE lease_until IS NOT NULL")
        await traffic.work_off()
        await check_line(pool)
        runs = [await stores.runs.get(ALICE, run_id) for run_id in traffic.begun]
        assert [run for run in runs if not run.state.final] == []


class Traffic:
    """What users and workers do, in an order that is decided by chance."""

    def __init__(self, stores: Stores, sessions: list[Session]) -> None:
        self.begun: list[RunId] = []
        self._stores = stores
        self._sessions = sessions
        self._chance = random.Random(8)

    async def flow(self, until: float) -> None:
        """Do one thing after the other; what is refused is let be."""
        acts = [self._say, self._say, self._stop, self._retry, *[self._work] * 3]
        while asyncio.get_running_loop().time() < until:
            with suppress(FencedError, ServiceError):
                await self._chance.choice(acts)()

    async def work_off(self) -> None:
        """Bring every run to its end."""
        while claims := await self._stores.queue.claim(lease=LEASE, most=5):
            for claim in claims:
                await self._end(claim)

    async def _say(self) -> None:
        session, how = self._chance.choice(self._sessions), self._chance.choice(list(WhenBusy))
        run, _ = await self._stores.runs.start(ALICE, session.id, "x", when_busy=how)
        self.begun.append(run.id)

    async def _stop(self) -> None:
        if self.begun:
            await self._stores.runs.cancel(ALICE, self._chance.choice(self.begun))

    async def _retry(self) -> None:
        if self.begun:
            await self._stores.runs.retry(ALICE, self._chance.choice(self.begun))

    async def _work(self) -> None:
        lease = self._chance.choice([LEASE, timedelta(0)])
        for claim in await self._stores.queue.claim(lease=lease, most=3):
            journal, asked = self._stores.queue.journal(claim), call(new_id())
            if claim.run.cancel_reason is None:
                await journal.append_assistant(asking(asked), usage=Usage())
            if self._chance.random() < 0.5:
                await journal.append_tool_results([result_of(asked)])
            if self._chance.random() < 0.3:
                await self._stores.queue.hand_back(claim)
            else:
                await self._end(claim)

    async def _end(self, claim: Claim) -> None:
        stop = outcome.of_claim(claim, crash_limit=1000)
        ending = self._chance.choice([ENDED, INTERNAL]) if stop is None else stop.ending
        assert ending is not None
        await self._stores.queue.journal(claim).finish(ending)


async def rows_of_a_claim(lent: PooledConnection, *, most: int) -> float:
    """How many rows a claim reads to find runs; what it does with those is not counted."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {queue._CLAIM}"
    async with lent.transaction():
        [[plan]] = await lent.fetch(explain, timedelta(seconds=1), most, 3, 1)
    root = json.loads(plan)[0]["Plan"]
    scanned = {node["Relation Name"] for node in nodes(root) if node["Node Type"] == "Seq Scan"}
    assert scanned <= {"agent"}
    return sum(rows_read(node) for node in root["Plans"] if node.get("Subplan Name"))


async def rows_of(lent: PooledConnection, statement: str, *values: object) -> float:
    """How many rows a statement reads."""
    async with lent.transaction():
        [[plan]] = await lent.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *values)
    return rows_read(json.loads(plan)[0]["Plan"])


class TestDelete:
    async def test_deleting_a_session_that_is_being_written_to_never_locks_up(
        self, stores: Stores
    ) -> None:
        async def one() -> None:
            run = await stores.started()
            claims = await stores.queue.claim(lease=LEASE, most=50)
            claim = next((each for each in claims if each.run.id == run.id), None)
            if claim is None:
                return
            journal = stores.queue.journal(claim)
            writes: list[Any] = [
                journal.finish(ENDED, [answer()]),
                stores.sessions.delete(ALICE, run.session_id),
                stores.runs.cancel(ALICE, run.id),
                stores.queue.renew([claim], lease=LEASE),
                stores.runs.start(ALICE, run.session_id, "x"),
            ]
            for result in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(result, BaseException):
                    assert isinstance(result, FencedError) or (
                        isinstance(result, ServiceError) and result.reason == "NOT_FOUND"
                    ), result

        async with asyncio.timeout(30):
            for _ in range(25):
                await one()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan and all its parts."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def rows_read(plan: dict[str, Any]) -> float:
    """How many rows of tables a plan has read."""
    own = 0.0
    if "Relation Name" in plan:
        removed = plan.get("Rows Removed by Filter", 0)
        own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return own + sum(rows_read(inner) for inner in plan.get("Plans", ()))
