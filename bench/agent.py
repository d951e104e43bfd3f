"""The agent service's stores and worker in this process: what its measurements share."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from services.agent.domain.models import AgentSettings, Session
from services.agent.domain.places import Places
from services.agent.holding import Turns
from services.agent.store.postgres.agents import PostgresAgentStore
from services.agent.store.postgres.queue import PostgresRunQueue
from services.agent.store.postgres.runs import PostgresRunStore
from services.agent.store.postgres.schema import MIGRATIONS, SCHEMA
from services.agent.store.postgres.sessions import PostgresSessionStore
from services.agent.worker import Worker
from services.common.db import Pool, connection, open_pool
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.migrate import load_migrations, migrate

IDENTITY = Identity(tenant="bench", user_id="bench")
T = TypeVar("T")
_NO_LIMIT = 1_000_000
_AT_ONCE = 20
_FORGET = """
TRUNCATE run, chat_message, tool_call;
UPDATE chat_session SET last_sequence = 0, unfinished = 0;
"""


class Hint:
    """A waiter for hints; satisfies `hints.Subscription`."""

    def __init__(self) -> None:
        self._hinted = asyncio.Event()

    async def wait(self) -> None:
        """Return after a hint."""
        await self._hinted.wait()
        self._hinted.clear()

    def wake(self) -> None:
        """Let `wait` return."""
        self._hinted.set()


class Hints:
    """Hints within one process; satisfies `Listener` and `Notifier`."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    @contextmanager
    def subscribe(self, key: str) -> Iterator[Hint]:
        """Hints at `key`, until the end of the block."""
        hint = Hint()
        with self.on_hint(key, hint.wake):
            yield hint

    @contextmanager
    def on_hint(self, key: str, call: Callable[[], None]) -> Iterator[None]:
        """Calls at each hint at `key`, until the end of the block."""
        self._calls[key].append(call)
        try:
            yield
        finally:
            self._calls[key].remove(call)

    def notify(self, key: str) -> None:
        """Hint at news of `key`."""
        for call in self._calls.get(key, ()):
            call()


@dataclass(frozen=True, slots=True)
class AgentStores:
    """The stores over one pool.

    Attributes:
        pool: their connections.
        runs: accepts messages.
        queue: gives out runs.
        sessions: to say something in.
    """

    pool: Pool
    runs: PostgresRunStore
    queue: PostgresRunQueue
    sessions: list[Session]

    async def ask(self, count: int) -> None:
        """A message in each of the first so many sessions, and so a run; those before are gone."""
        async with connection(self.pool) as lent:
            await lent.execute(_FORGET)
        await _at_once(
            [self.runs.start(IDENTITY, each.id, "What is it?") for each in self.sessions[:count]]
        )
        async with connection(self.pool) as lent:
            await lent.execute(
                "VACUUM ANALYZE run, chat_session, chat_message, tool_call", timeout=60
            )

    @asynccontextmanager
    async def working(self, turns: Turns, *, runs_at_once: int) -> AsyncIterator[None]:
        """A worker who takes runs for as long as the block lasts."""
        hints, places = Hints(), Places(runs_at_once)
        worker = Worker(self.queue, turns, places=places, listener=hints, notifier=hints)
        async with self.queue.together(), worker.working():
            yield


@asynccontextmanager
async def agent_stores(
    dsn: str, *, connections: int, sessions: int, settings: AgentSettings
) -> AsyncIterator[AgentStores]:
    """Stores over a new schema, with so many sessions of one agent."""
    await migrate(dsn, load_migrations(MIGRATIONS), schema=SCHEMA)
    async with open_pool(
        dsn, schema=SCHEMA, application_name="bench", max_size=connections
    ) as pool:
        agent = await PostgresAgentStore(pool, new_id=new_id).create(IDENTITY, settings)
        store = PostgresSessionStore(pool, new_id=new_id)
        made = await _at_once([store.create(IDENTITY, agent.id) for _ in range(sessions)])
        runs = PostgresRunStore(
            pool, new_id=new_id, queue_limit=_NO_LIMIT, tenant_queue_limit=_NO_LIMIT
        )
        yield AgentStores(pool, runs, PostgresRunQueue(pool, new_id=new_id), made)


async def _at_once(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, so many at a time that none waits too long for a connection."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def gated(call: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await call

    return await asyncio.gather(*(gated(call) for call in calls))
