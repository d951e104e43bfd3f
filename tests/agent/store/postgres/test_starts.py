"""What of accepting messages only PostgreSQL can get wrong: many at once, from many processes."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.models import Session
from services.agent.domain.run_models import RunState, StopReason
from services.common.db import Pool
from tests.agent.line import check_line
from tests.agent.running import ROOT
from tests.contracts.agent_stores import (
    ALICE,
    LEASE,
    Stores,
    agent_pool,
    answer,
    postgres_stores,
    request_key,
)
from tests.contracts.test_agent_line import check_depth

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
PROCESSES, EACH = 5, 10


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables) as pool:
        yield pool


@pytest.fixture
def stores(pool: Pool) -> Stores:
    return postgres_stores(pool, queue_limit=20)


async def submit(dsn: str, session: Session, name: str, *manner: str) -> list[dict[str, Any]]:
    """What becomes of the messages that a process of its own sends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.agent.submitter",
        *(dsn, session.id, name, str(EACH), *manner),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])},
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in told.splitlines()]


class TestManyAtOnce:
    async def test_the_depth_of_a_session_is_exact_whoever_counts(
        self, empty_tables: str, stores: Stores, pool: Pool
    ) -> None:
        """T-D8: 50 messages at once from several processes; the cap lets 20 in, and says so."""
        session = await stores.session()

        told = await asyncio.gather(
            *(submit(empty_tables, session, f"p{n}", "20", "together") for n in range(PROCESSES))
        )

        outcomes = [each for lines in told for each in lines]
        accepted = sorted(each["sequence"] for each in outcomes if "sequence" in each)
        refused = [each for each in outcomes if "sequence" not in each]
        assert list(range(1, 21)) == accepted
        assert refused == [{"limit": "20", "scope": "session"}] * 30
        assert [claim.run.turn for claim in await stores.queue.claim(lease=LEASE, most=9)] == [1]
        await check_line(pool)

    async def test_each_process_keeps_its_order_and_one_run_goes_on_at_a_time(
        self, empty_tables: str, stores: Stores, pool: Pool
    ) -> None:
        """T-D8: while several workers answer."""
        session = await stores.session()
        at_once = Counter[str]()
        turns: list[int] = []

        async def work() -> None:
            while len(turns) < PROCESSES * EACH:
                for claim in await stores.queue.claim(lease=LEASE, most=2):
                    at_once["now"] += 1
                    at_once["most"] = max(at_once["most"], at_once["now"])
                    await asyncio.sleep(0)
                    turns.append(claim.run.turn)
                    at_once["now"] -= 1
                    await stores.queue.journal(claim).finish(ENDED, [answer()])
                await asyncio.sleep(0.001)

        async with asyncio.timeout(50):
            told, *_ = await asyncio.gather(
                asyncio.gather(
                    *(submit(empty_tables, session, f"p{n}", "99", "in-turn") for n in range(5))
                ),
                *(work() for _ in range(3)),
            )

        for lines in told:
            sent = [each["sequence"] for each in lines]
            assert sorted(sent) == sent
        assert sorted(turns) == turns
        assert at_once["most"] == 1
        assert len(await stores.said(session)) == 2 * PROCESSES * EACH
        await check_line(pool)


class TestRequests:
    async def test_of_many_repeats_at_once_one_is_accepted(
        self, stores: Stores, pool: Pool
    ) -> None:
        session = await stores.session()
        key = request_key("x")

        started = await asyncio.gather(
            *(stores.runs.start(ALICE, session.id, "Hello", request=key) for _ in range(20))
        )

        assert len({run.id for run, _ in started}) == 1
        assert len({message.id for _, message in started}) == 1
        assert len(await stores.said(session)) == 1
        await check_line(pool)


class TestDepth:
    async def test_a_tenant_has_only_so_many(self, pool: Pool) -> None:
        await check_depth(postgres_stores(pool, tenant_queue_limit=3), limit=3)
        await check_line(pool)
