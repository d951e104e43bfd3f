"""What of messages only PostgreSQL can get wrong: ties, deep pages, limits, concurrent commits."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.agent.domain.models import Session
from services.agent.store.postgres import messages
from services.common.db import Pool, connection
from tests.contracts.agent_stores import ALICE, Stores, agent_pool, postgres_stores

CASE = Path(__file__).parents[3] / "cases/43-deep-pages-with-ties"
MIB = 1024 * 1024

_INSERT = """
INSERT INTO chat_message
    (session_id, sequence, id, run_id, turn, step, role, text, wire_size, create_time)
VALUES ($1, $2, $3, gen_random_uuid(), 1, 0, 'user', $4, 1000, $5)
"""
_MANY = """
INSERT INTO chat_message
    (session_id, sequence, id, run_id, turn, step, role, text, wire_size, create_time)
SELECT $1, n, gen_random_uuid(), gen_random_uuid(), n, 0, 'user', 'm' || n, 1000, now()
FROM generate_series($2::bigint + 1, $2::bigint + 20000) AS n
"""


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables, max_size=20) as pool:
        yield pool


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return postgres_stores(pool, queue_limit=100)


async def texts(stores: Stores, session: Session, *, newest_first: bool) -> list[list[str]]:
    """The session in pages of five."""
    pages: list[list[str]] = []
    last: int | None = None
    while True:
        if newest_first:
            found = await stores.messages.before(ALICE, session.id, last, most=5, max_bytes=MIB)
        else:
            found = await stores.messages.after(ALICE, session.id, last or 0, most=5, max_bytes=MIB)
        pages.append([message.text for message in found.items])
        if not found.more:
            return pages
        last = found.items[-1].sequence


class TestCase43:
    """tests/cases/43-deep-pages-with-ties."""

    async def insert(self, pool: Pool, session: Session, row: dict[str, Any]) -> None:
        time = datetime.fromisoformat(row["created_at"])
        async with connection(pool) as lent:
            await lent.execute(_INSERT, session.id, row["seq"], row["id"], row["content"], time)

    async def test_equal_times_neither_hide_nor_double_a_message(
        self, pool: Pool, stores: Stores
    ) -> None:
        session = await stores.session()
        for row in json.loads((CASE / "rows.json").read_text()):
            await self.insert(pool, session, row)

        expected = json.loads((CASE / "expected.json").read_text())
        assert expected["oldest_first"] == await texts(stores, session, newest_first=False)
        assert expected["newest_first"] == await texts(stores, session, newest_first=True)

    async def test_a_message_that_arrives_between_two_pages_moves_no_other(
        self, pool: Pool, stores: Stores
    ) -> None:
        session = await stores.session()
        rows = json.loads((CASE / "rows.json").read_text())
        for row in rows:
            await self.insert(pool, session, row)
        up = await stores.messages.after(ALICE, session.id, 0, most=5, max_bytes=MIB)
        down = await stores.messages.before(ALICE, session.id, None, most=5, max_bytes=MIB)
        late = {**rows[4], "seq": 13, "content": "m13", "id": rows[4]["id"].replace("6b", "00")}
        await self.insert(pool, session, late)

        last_up, last_down = up.items[-1].sequence, down.items[-1].sequence
        rest = await stores.messages.after(ALICE, session.id, last_up, most=99, max_bytes=MIB)
        older = await stores.messages.before(ALICE, session.id, last_down, most=99, max_bytes=MIB)

        assert [f"m{n}" for n in range(6, 14)] == [each.text for each in rest.items]
        assert [f"m{n}" for n in range(7, 0, -1)] == [each.text for each in older.items]

    async def test_a_deep_page_costs_what_the_first_one_does(
        self, pool: Pool, stores: Stores
    ) -> None:
        session = await stores.session()
        async with connection(pool) as lent:
            for first in range(0, 200_000, 20_000):
                await lent.execute(_MANY, session.id, first)
            await lent.execute("ANALYZE chat_message")
            for statement in (messages._AFTER, messages._BEFORE):
                for sequence in (60, 100_000, 199_900):
                    key = (ALICE.tenant, ALICE.user_id, session.id, sequence, 50, MIB)
                    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                    [[plan]] = await lent.fetch(explain, *key)
                    read = list(scans(json.loads(plan)[0]["Plan"], "chat_message"))

                    assert all(kind.startswith("Index") for kind, _ in read)
                    assert max(rows for _, rows in read) == 51


def scans(plan: dict[str, Any], table: str) -> Iterator[tuple[str, float]]:
    """How a table was read, and how many rows of it, each time that it was."""
    if plan.get("Relation Name") == table:
        removed = plan.get("Rows Removed by Filter", 0)
        yield plan["Node Type"], plan["Actual Rows"] + removed
    for inner in plan.get("Plans", ()):
        yield from scans(inner, table)


class TestLimits:
    async def test_the_table_takes_a_mebibyte_of_text_and_no_byte_more(
        self, pool: Pool, stores: Stores
    ) -> None:
        session = await stores.session()
        key = (session.id, 1, "6513270e-269e-4d37-b2a7-4de452e6b438")
        time = datetime.fromisoformat("2026-06-01T10:30:00+00:00")
        async with connection(pool) as lent:
            with pytest.raises(asyncpg.CheckViolationError):
                await lent.execute(_INSERT, *key, "\u5b57" * (MIB // 3) + "xy", time)
            await lent.execute(_INSERT, *key, "\u5b57" * (MIB // 3) + "x", time)


class TestNumbers:
    async def test_commits_of_many_connections_leave_no_gap_and_keep_their_order(
        self, stores: Stores
    ) -> None:
        session = await stores.session()
        seen: list[int] = []

        async def say() -> None:
            _, message = await stores.runs.start(ALICE, session.id, "x")
            seen.append(message.sequence)

        await asyncio.gather(*(say() for _ in range(60)))

        said = await stores.said(session)
        assert list(range(1, 61)) == [message.sequence for message in said]
        assert list(range(1, 61)) == sorted(seen)
        times = [message.create_time for message in said]
        assert times == sorted(times)

    async def test_a_transaction_that_fails_leaves_no_gap(self, pool: Pool, stores: Stores) -> None:
        session = await stores.session()
        async with connection(pool) as lent:
            transaction = lent.transaction()
            await transaction.start()
            await lent.execute("UPDATE chat_session SET last_sequence = last_sequence + 1")
            waiting = asyncio.ensure_future(stores.runs.start(ALICE, session.id, "x"))
            await _until_blocked(pool)
            await transaction.rollback()

        _, message = await waiting
        assert message.sequence == 1


async def _until_blocked(pool: Pool) -> None:
    """Wait until some statement waits for a lock."""
    async with asyncio.timeout(5), connection(pool) as lent:
        while not await lent.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
