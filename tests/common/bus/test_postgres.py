"""What the contract suite cannot see of PostgreSQL's bus: what the server is asked to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.common.bus import postgres
from services.common.bus.outbox import Outbox, keys_of
from services.common.bus.waiters import Waiters
from services.common.errors import UnavailableError
from services.common.session import Connection
from tests.contracts.hints import hinted

NEVER = 600.0


@asynccontextmanager
async def carried(dsn: str) -> AsyncIterator[tuple[Waiters, Outbox]]:
    """Both ends of a bus on the channel "news"."""
    waiters, outbox = Waiters(poll=NEVER), Outbox()
    carrying = asyncio.create_task(
        postgres.carry(dsn, "news", waiters, outbox, application_name="bus")
    )
    try:
        yield waiters, outbox
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Connection]:
    """A connection of the test's own."""
    opened = await asyncpg.connect(dsn)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def watched(empty_database: str) -> AsyncIterator[Connection]:
    """A connection to the database that the bus goes through."""
    async with session(empty_database) as opened:
        yield opened


async def connections(watched: Connection, *, within: float = 20.0) -> set[int]:
    """The process ids of the bus's two connections, once there are two."""
    query = (
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'bus-%' AND state = 'idle'"
    )
    async with asyncio.timeout(within):
        while len(pids := {row["pid"] for row in await watched.fetch(query)}) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return pids


class TestCarry:
    async def test_many_keys_travel_in_few_messages(
        self, empty_database: str, watched: Connection
    ) -> None:
        messages: asyncio.Queue[str] = asyncio.Queue()
        await watched.add_listener("news", lambda *heard: messages.put_nowait(str(heard[-1])))
        keys = [f"{number:036d}" for number in range(1000)]

        async with carried(empty_database) as (_, outbox):
            for key in keys:
                outbox.notify(key)
            heard = [keys_of(await asyncio.wait_for(messages.get(), 20)) for _ in range(5)]

        assert keys == [key for message in heard for key in message]
        assert messages.empty()

    async def test_both_connections_are_made_again_each_time_they_are_ended(
        self, empty_database: str, watched: Connection
    ) -> None:
        async with carried(empty_database) as (waiters, outbox):
            with hinted(waiters, "a") as waiter:
                for _ in range(3):
                    for pid in await connections(watched):
                        await watched.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
                    await connections(watched)

                    outbox.notify("a")

                    await asyncio.wait_for(waiter.wait(), 20)

    async def test_one_that_is_lost_before_anybody_watches_it_is_noticed(
        self, empty_database: str
    ) -> None:
        async with session(empty_database) as lost:
            lost.terminate()

            with pytest.raises(UnavailableError):
                await asyncio.wait_for(postgres._fail_when_lost(lost), 5)

    async def test_a_refusal_for_good_ends_it(self, empty_database: str) -> None:
        password = empty_database.partition("@")[0].rpartition(":")[2]
        wrong = empty_database.replace(f":{password}@", ":wrong@")

        with pytest.raises(asyncpg.InvalidPasswordError):
            await postgres.carry(
                wrong, "news", Waiters(poll=NEVER), Outbox(), application_name="bus"
            )
