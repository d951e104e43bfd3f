"""What of chat memory only PostgreSQL can get wrong: plans, races, locks."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from services.agent.domain.errors import FencedError
from services.agent.domain.memory.models import LAST, Memory, Place, Summary
from services.agent.domain.run_models import Usage
from services.agent.store.postgres import memories
from services.common.db import Pool, connection
from services.common.errors import NotFoundError
from tests.contracts.agent_stores import ALICE, Stores, agent_pool, postgres_stores

MIB = 1024 * 1024

_MANY = """
INSERT INTO chat_message
    (session_id, sequence, id, run_id, turn, step, role, text, wire_size, create_time)
SELECT $1, n, gen_random_uuid(), gen_random_uuid(), n - (n + 1) % 2, 0,
    CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'm' || n, 1000, now()
FROM generate_series(1, 20000) AS n
"""


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables, max_size=20) as pool:
        yield pool


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return postgres_stores(pool, queue_limit=100)


def summary(through: int) -> Summary:
    return Summary(f"through {through}", "q", through_turn=through, messages=through, model="m")


class TestPlan:
    async def test_a_page_reads_no_more_than_it_gives(self, pool: Pool, stores: Stores) -> None:
        session = await stores.session()
        async with connection(pool) as lent:
            await lent.execute(_MANY, session.id)
            await lent.execute("ANALYZE chat_message")
            for statement in (memories._OLDEST_FIRST, memories._NEWEST_FIRST):
                for turn in (1, 9999, 19_801):
                    key = (ALICE.tenant, ALICE.user_id, session.id, turn, LAST, LAST, 0, 64, MIB)
                    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                    [[plan]] = await lent.fetch(explain, *key)
                    read = list(scans(json.loads(plan)[0]["Plan"], "chat_message"))

                    assert all(kind.startswith("Index") for kind, _ in read)
                    assert max(rows for _, rows in read) == 65


def scans(plan: dict[str, Any], table: str) -> Iterator[tuple[str, float]]:
    """How a table was read, and how many rows of it, each time that it was."""
    if plan.get("Relation Name") == table:
        removed = plan.get("Rows Removed by Filter", 0)
        yield plan["Node Type"], plan["Actual Rows"] + removed
    for inner in plan.get("Plans", ()):
        yield from scans(inner, table)


class TestManyAtOnce:
    async def test_of_many_summaries_at_once_one_is_kept_and_it_only_grows(
        self, stores: Stores
    ) -> None:
        session = await stores.session()
        kept = Memory()
        for round_ in range(10):
            put = [
                stores.memories.put(
                    ALICE, session.id, summary(10 * round_ + place), revision=kept.revision
                )
                for place in range(1, 9)
            ]
            won = [each for each in await asyncio.gather(*put) if each is not None]

            assert len(won) == 1
            assert won[0] == await stores.memories.get(ALICE, session.id)
            before = kept.summary.through_turn if kept.summary else 0
            assert won[0].summary is not None
            assert won[0].summary.through_turn > before
            kept = won[0]

    async def test_a_session_is_deleted_while_it_is_summarised_and_nothing_is_left(
        self, pool: Pool, stores: Stores
    ) -> None:
        for _ in range(20):
            run = await stores.started()
            claim = await stores.claimed()
            journal = stores.queue.journal(claim)

            await asyncio.gather(
                journal.remember(summary(1), revision=0, usage=Usage(1, 1)),
                stores.memories.put(ALICE, run.session_id, summary(1), revision=0),
                stores.memories.clear(ALICE, run.session_id),
                stores.sessions.delete(ALICE, run.session_id),
                return_exceptions=True,
            )

            with pytest.raises(NotFoundError):
                await stores.sessions.get(ALICE, run.session_id)
            async with connection(pool) as lent:
                assert await lent.fetchval("SELECT count(*) FROM chat_memory") == 0
            with pytest.raises(FencedError):
                await journal.remember(summary(1), revision=0, usage=Usage())


def test_places_are_ordered_as_models_are_shown_messages() -> None:
    assert Place(1, LAST) < Place(3, 3) < Place(3, 7) < Place(5, 0) < Place(5, 5)
