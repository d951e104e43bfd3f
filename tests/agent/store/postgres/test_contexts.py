"""What only reading many contexts with one statement can get wrong: whose is whose."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TypeGuard

import asyncpg
import pytest

from services.agent.domain.chat import Ending, RunContext
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import RunState, StopReason
from services.common.db import Pool, connection
from tests.contracts.agent_stores import (
    ALICE,
    LEASE,
    PRIVATE,
    Stores,
    agent_pool,
    answer,
    postgres_stores,
    together_stores,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
RUNS = 20
_WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables) as pool:
        yield pool


@pytest.fixture
async def stores(pool: Pool) -> AsyncIterator[Stores]:
    async with together_stores(pool) as stores:
        yield stores


async def read(stores: Stores, claims: list[Claim]) -> list[RunContext | BaseException]:
    """The contexts of all, asked for at once, or what was raised instead."""
    return await asyncio.gather(
        *(stores.queue.context(claim) for claim in claims), return_exceptions=True
    )


async def begun(stores: Stores) -> list[Claim]:
    """Runs in hand: the first one's context is read alone, those of the others together."""
    for number in range(RUNS):
        await stores.started(f"question {number}")
    return list(await stores.queue.claim(lease=LEASE, most=RUNS))


class TestContext:
    async def test_each_run_begins_with_its_own(self, stores: Stores) -> None:
        claims = await begun(stores)

        contexts = await read(stores, claims)

        for number, (claim, context) in enumerate(zip(claims, contexts, strict=True)):
            assert isinstance(context, RunContext)
            assert claim.run == context.run
            assert [f"question {number}"] == [each.text for each in context.turn]
            assert [claim.run.id] == [each.run_id for each in context.turn]
            assert claim.run.agent_id == context.agent.id

    async def test_each_history_is_as_long_as_its_own_agent_has_it(self, stores: Stores) -> None:
        for most in range(5):
            window = replace(PRIVATE.window, max_messages=most)
            session = await stores.session(settings=replace(PRIVATE, window=window))
            for turn in range(5):
                await stores.runs.start(ALICE, session.id, f"question {turn}")
        claims = list(await stores.queue.claim(lease=LEASE, most=5))
        for _ in range(4):
            for claim in claims:
                await stores.queue.journal(claim).finish(ENDED)
            claims = list(await stores.queue.claim(lease=LEASE, most=5))

        contexts = await read(stores, claims)

        told = {
            context.agent.settings.window.max_messages: [each.text for each in context.history]
            for context in contexts
            if isinstance(context, RunContext)
        }
        whole = [f"question {turn}" for turn in range(4)]
        assert {most: whole[len(whole) - most :] for most in range(5)} == told

    async def test_what_is_too_large_to_be_read_with_others_is_whole_all_the_same(
        self, stores: Stores
    ) -> None:
        claims = await begun(stores)
        large = [answer("x" * 400_000), answer("y" * 400_000)]
        session_id = claims[2].run.session_id
        await stores.queue.journal(claims[2]).finish(ENDED, large)
        await stores.runs.start(ALICE, session_id, "more")
        [claims[2]] = await stores.queue.claim(lease=LEASE, most=1)

        contexts = await read(stores, claims)

        told = [_is_context(each) and len(each.history) for each in contexts]
        assert told == [3 if at == 2 else 0 for at in range(RUNS)]

    async def test_what_one_run_lacks_is_told_to_it_alone(self, stores: Stores) -> None:
        claims = await begun(stores)
        await stores.agents.delete(ALICE, claims[3].run.agent_id)
        await stores.queue.hand_back(claims[5])
        claims[7] = replace(claims[7], epoch=claims[7].epoch + 1)

        contexts = await read(stores, claims)

        told = {at: type(each) for at, each in enumerate(contexts) if not _is_context(each)}
        assert told == {3: AgentDeletedError, 5: FencedError, 7: FencedError}

    async def test_an_error_of_the_database_is_met_by_whose_it_is_alone(
        self, stores: Stores
    ) -> None:
        claims = await begun(stores)
        claims[4] = replace(claims[4], epoch=2**63)

        contexts = await read(stores, claims)

        told = {at: type(each) for at, each in enumerate(contexts) if not _is_context(each)}
        assert told == {4: asyncpg.DataError}

    async def test_a_session_deleted_amid_the_reading_is_no_longer_the_workers(
        self, pool: Pool
    ) -> None:
        stores = postgres_stores(pool)
        await stores.started()
        [claim] = await stores.queue.claim(lease=LEASE, most=1)
        async with connection(pool) as other:
            async with other.transaction():
                await other.execute("LOCK TABLE chat_message IN ACCESS EXCLUSIVE MODE")
                reading = asyncio.create_task(stores.queue.context(claim))
                while not await other.fetchval(_WAITS):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                for table in ("chat_message", "tool_call", "run", "chat_session"):
                    await other.execute(f"DELETE FROM {table}")
            with pytest.raises(FencedError):
                await reading


def _is_context(read: RunContext | BaseException) -> TypeGuard[RunContext]:
    return isinstance(read, RunContext)
