"""What of the queue only PostgreSQL can get wrong: who gets a run, and what it costs to look."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.run_models import RunState, StopReason
from services.agent.store.postgres import queue
from services.common.db import Pool, connection
from services.common.errors import ServiceError
from tests.contracts.agent_stores import (
    ALICE,
    LEASE,
    Stores,
    agent_pool,
    answer,
    postgres_stores,
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
            for statement in (queue._CLAIM_LAPSED, queue._CLAIM_WAITING):
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                [[plan]] = await lent.fetch(explain, timedelta(seconds=1), 10)
                read = rows_read(json.loads(plan)[0]["Plan"])

                assert read <= 10


class TestDelete:
    async def test_deleting_a_session_that_is_being_written_to_never_locks_up(
        self, stores: Stores
    ) -> None:
        async def one() -> None:
            run = await stores.started()
            [claim] = [
                claim
                for claim in await stores.queue.claim(lease=LEASE, most=50)
                if claim.run.id == run.id
            ] or [None]
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
            for outcome in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, FencedError) or (
                        isinstance(outcome, ServiceError) and outcome.reason == "NOT_FOUND"
                    ), outcome

        async with asyncio.timeout(30):
            for _ in range(25):
                await one()


def rows_read(plan: dict[str, Any]) -> float:
    """How many rows of tables a plan has read."""
    own = 0.0
    if "Relation Name" in plan:
        removed = plan.get("Rows Removed by Filter", 0)
        own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return own + sum(rows_read(inner) for inner in plan.get("Plans", ()))
