"""What of sub-agents' runs only PostgreSQL can get wrong: what looking costs, and locks."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.models import RunLimits, SessionId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import RunState, StopReason, Usage
from services.agent.domain.stores import Which
from services.agent.domain.sub_runs import Task
from services.agent.store.postgres import asks, sessions
from services.common.db import Pool, PooledConnection, connection
from services.common.errors import ServiceError
from tests.contracts.agent_stores import (
    ALICE,
    LEASE,
    PRIVATE,
    Stores,
    agent_pool,
    answer,
    asking,
    call,
    postgres_stores,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)

# 100 sessions of Alice's, each with a run that asked 100 agents.
_OWN = """
INSERT INTO chat_session (id, tenant, user_id, agent_id, title, create_time, update_time)
SELECT gen_random_uuid(), 'acme', 'alice', gen_random_uuid(), '', now(), now()
FROM generate_series(1, 100)
"""
_CALLERS = """
INSERT INTO run (
    id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time, end_time,
    stop_reason)
SELECT gen_random_uuid(), id, tenant, user_id, agent_id, gen_random_uuid(), 1, 'finished',
    now(), now(), 'end_turn'
FROM chat_session
"""
_SUB_SESSIONS = """
INSERT INTO chat_session (
    id, tenant, user_id, agent_id, title, create_time, update_time, parent_run_id, parent_call_key)
SELECT gen_random_uuid(), tenant, user_id, agent_id, '', now(), now(), run.id, 'k' || number
FROM run, generate_series(1, 100) AS number
"""
_SUBS = """
INSERT INTO run (
    id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time, end_time,
    stop_reason, parent_run_id, parent_call_key, parent_limits)
SELECT gen_random_uuid(), id, tenant, user_id, agent_id, gen_random_uuid(), 1, 'finished',
    now(), now(), 'end_turn', parent_run_id, parent_call_key, '{}'
FROM chat_session WHERE parent_run_id IS NOT NULL
"""
_CALLS = """
INSERT INTO tool_call (run_id, step, place, call_id, tool_name, state, plan_time)
SELECT id, 1, 0, 'c', 'look', 'planned', now() FROM run
"""


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables, max_size=20) as pool:
        yield pool


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return postgres_stores(pool, queue_limit=100)


def tables_read(plan: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """How each table is read: its name, the kind of scan, and how many rows."""
    if "Relation Name" in plan:
        removed = plan.get("Rows Removed by Filter", 0)
        rows = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
        yield plan["Relation Name"], plan["Node Type"], rows
    for inner in plan.get("Plans", ()):
        yield from tables_read(inner)


async def read_by(lent: PooledConnection, statement: str, *values: object) -> float:
    """How many rows a statement reads; that it reads a whole table is an error."""
    async with lent.transaction():
        [[plan]] = await lent.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *values)
    read = list(tables_read(json.loads(plan)[0]["Plan"]))
    assert {kind for table, kind, _ in read if kind == "Seq Scan" and table != "agent"} == set()
    return sum(rows for _, _, rows in read)


class TestCosts:
    @pytest.fixture
    async def crowded(self, pool: Pool) -> Pool:
        """10,000 runs of sub-agents."""
        async with connection(pool) as lent:
            for statement in (_OWN, _CALLERS, _SUB_SESSIONS, _SUBS, _CALLS):
                await lent.execute(statement)
            await lent.execute("ANALYZE")
        return pool

    @pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
    async def test_nothing_reads_what_belongs_to_others(self, crowded: Pool, plans: str) -> None:
        async with connection(crowded) as lent:
            await lent.execute(f"SET plan_cache_mode = {plans}")
            caller = await lent.fetchval("SELECT id FROM run WHERE parent_run_id IS NULL LIMIT 1")
            totals = asks.SUB_TOTALS.format(run_id="$1")

            assert await read_by(lent, asks._FIND, caller, "k7") <= 1
            assert await read_by(lent, totals, caller) <= 200

    @pytest.mark.parametrize(
        ("which", "most"),
        [(Which(), 50), (Which(sub_sessions=True), 50), (Which(agent_id=None), 50)],
    )
    async def test_a_list_reads_its_page(self, crowded: Pool, which: Which, most: int) -> None:
        conditions, values = sessions._conditions(which)
        last = "ffffffff-ffff-ffff-ffff-ffffffffffff"
        async with connection(crowded) as lent:
            statement = sessions._LIST.format(which=conditions)
            read = await read_by(lent, statement, "acme", "alice", last, 20, *values)

        assert read <= most


class TestLocks:
    async def test_all_at_once_never_locks_up_and_leaves_nothing_behind(
        self, pool: Pool, stores: Stores
    ) -> None:
        """Two levels of sub-agents are asked, written to, renewed, stopped and deleted."""
        callee = await stores.agents.create(ALICE, PRIVATE)

        def task(key: str) -> Task:
            return Task(callee.id, "x", key, RunLimits())

        async def one(number: int) -> SessionId:
            run = await stores.started()
            claims = await stores.queue.claim(lease=LEASE, most=50)
            caller = next(each for each in claims if each.run.id == run.id)
            sub = await stores.queue.ask(caller, task("k1"), lease=LEASE)
            assert isinstance(sub, Claim)
            below = await stores.queue.ask(sub, task("k2"), lease=LEASE)
            assert isinstance(below, Claim)
            await stores.queue.journal(caller).append_assistant(asking(call("k1")), usage=Usage())
            all_at_once: list[Any] = [
                stores.queue.ask(caller, task("k3"), lease=LEASE),
                stores.queue.ask(sub, task("k4"), lease=LEASE),
                stores.queue.journal(below).finish(ENDED, [answer()]),
                stores.queue.journal(sub).append_assistant(asking(call("a")), usage=Usage(1, 1)),
                stores.queue.renew([below, sub, caller], lease=LEASE),
                stores.queue.journal(caller).append_tool_results([result_of(call("k1"))]),
                stores.runs.cancel(ALICE, sub.run.id),
                stores.queue.journal(caller).finish(ENDED, [answer()]),
            ]
            if number % 2:
                all_at_once.append(stores.sessions.delete(ALICE, run.session_id))
            for result in await asyncio.gather(*all_at_once, return_exceptions=True):
                if isinstance(result, BaseException):
                    expected = isinstance(result, FencedError | AgentDeletedError) or (
                        isinstance(result, ServiceError) and result.reason == "NOT_FOUND"
                    )
                    assert expected, repr(result)
            return run.session_id

        async with asyncio.timeout(60):
            for number in range(40):
                await one(number)

        async with connection(pool) as lent:
            open_subs = await lent.fetchval(
                "SELECT count(*) FROM run AS sub JOIN run ON run.id = sub.parent_run_id "
                "WHERE run.end_time IS NOT NULL AND sub.end_time IS NULL"
            )
            orphans = await lent.fetchval(
                "SELECT count(*) FROM chat_session WHERE parent_run_id IS NOT NULL "
                "AND NOT EXISTS (SELECT FROM run WHERE run.id = chat_session.parent_run_id)"
            )
        assert (open_subs, orphans) == (0, 0)
