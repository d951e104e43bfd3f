"""The agent service's stores under test: in memory and in PostgreSQL, by one name each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from services.agent.domain.hooks.hook import CallHistory
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.messages import Draft, Message, Role, ToolCall
from services.agent.domain.models import AgentSettings, Session, ToolCallId, Visibility
from services.agent.domain.ports import CutResults
from services.agent.domain.queue import Claim, RunQueue
from services.agent.domain.replay.recording import Recordings
from services.agent.domain.run_models import Run
from services.agent.domain.stores import (
    AgentStore,
    ApprovalStore,
    MessageStore,
    RequestKey,
    RunStore,
    SessionStore,
)
from services.agent.domain.watch.news import NewsStore
from services.agent.store.memory.agents import MemoryAgentStore
from services.agent.store.memory.approvals import MemoryApprovalStore
from services.agent.store.memory.call_history import MemoryCallHistory
from services.agent.store.memory.database import MemoryDatabase
from services.agent.store.memory.memories import MemoryMemoryStore
from services.agent.store.memory.news import MemoryNewsStore
from services.agent.store.memory.queue import MemoryRunQueue
from services.agent.store.memory.recordings import MemoryRecordings
from services.agent.store.memory.runs import MemoryRunStore
from services.agent.store.memory.sessions import MemoryMessageStore, MemorySessionStore
from services.agent.store.memory.wholes import MemoryCutResults
from services.agent.store.postgres.agents import PostgresAgentStore
from services.agent.store.postgres.approvals import PostgresApprovalStore
from services.agent.store.postgres.call_history import PostgresCallHistory
from services.agent.store.postgres.memories import PostgresMemoryStore
from services.agent.store.postgres.messages import PostgresMessageStore
from services.agent.store.postgres.news import PostgresNewsStore
from services.agent.store.postgres.queue import PostgresRunQueue
from services.agent.store.postgres.recordings import PostgresRecordings
from services.agent.store.postgres.runs import PostgresRunStore
from services.agent.store.postgres.sessions import PostgresSessionStore
from services.agent.store.postgres.wholes import PostgresCutResults
from services.common.clock import now
from services.common.db import Pool, open_pool
from services.common.identity import Identity
from services.common.identity import Role as TenantRole
from services.common.ids import new_id

QUEUE_LIMIT = 5
TENANT_QUEUE_LIMIT = 100_000
LEASE = timedelta(seconds=30)
AT_ONCE = timedelta(0)
"""A lease that has lapsed by the next look."""

ALICE = Identity("acme", "alice")
BOB = Identity("acme", "bob")
ADMIN = Identity("acme", "ada", frozenset({TenantRole.ADMIN}))
STRANGER = Identity("other", "alice")

PRIVATE = AgentSettings("Private")
SHARED = AgentSettings("Shared", visibility=Visibility.TENANT)


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores over one database."""

    agents: AgentStore
    sessions: SessionStore
    messages: MessageStore
    runs: RunStore
    queue: RunQueue
    news: NewsStore
    calls: CallHistory
    recordings: Recordings
    wholes: CutResults
    memories: MemoryStore
    approvals: ApprovalStore

    async def session(
        self, identity: Identity = ALICE, settings: AgentSettings = PRIVATE
    ) -> Session:
        """A new session with a new agent."""
        agent = await self.agents.create(identity, settings)
        return await self.sessions.create(identity, agent.id)

    async def started(self, text: str = "Hello", identity: Identity = ALICE) -> Run:
        """A run waiting in a session of its own."""
        session = await self.session(identity)
        run, _ = await self.runs.start(identity, session.id, text)
        return run

    async def claimed(self, *, lease: timedelta = LEASE) -> Claim:
        """The next run, taken; there must be one."""
        [claim] = await self.queue.claim(lease=lease, most=1)
        return claim

    async def said(self, session: Session | Run, identity: Identity = ALICE) -> list[Message]:
        """All messages of a session."""
        session_id = session.session_id if isinstance(session, Run) else session.id
        found = await self.messages.after(identity, session_id, 0, most=1000, max_bytes=10**9)
        return list(found.items)


def memory_stores(
    database: MemoryDatabase | None = None, *, tenant_queue_limit: int = TENANT_QUEUE_LIMIT
) -> Stores:
    """Stores in memory, over a database of their own where none is given."""
    database = database or MemoryDatabase(clock=now, new_id=new_id)
    return Stores(
        agents=MemoryAgentStore(database),
        sessions=MemorySessionStore(database),
        messages=MemoryMessageStore(database),
        runs=MemoryRunStore(
            database, queue_limit=QUEUE_LIMIT, tenant_queue_limit=tenant_queue_limit
        ),
        queue=MemoryRunQueue(database),
        news=MemoryNewsStore(database),
        calls=MemoryCallHistory(database),
        recordings=MemoryRecordings(database),
        wholes=MemoryCutResults(database),
        memories=MemoryMemoryStore(database),
        approvals=MemoryApprovalStore(database),
    )


@asynccontextmanager
async def together_stores(pool: Pool, *, queue_limit: int = QUEUE_LIMIT) -> AsyncIterator[Stores]:
    """Stores over a pool, whose workers commit together what they write at once."""
    stores = postgres_stores(pool, queue_limit=queue_limit)
    assert isinstance(stores.queue, PostgresRunQueue)
    async with stores.queue.together():
        yield stores


def postgres_stores(
    pool: Pool, *, queue_limit: int = QUEUE_LIMIT, tenant_queue_limit: int = TENANT_QUEUE_LIMIT
) -> Stores:
    """Stores over a pool."""
    return Stores(
        agents=PostgresAgentStore(pool, new_id=new_id),
        sessions=PostgresSessionStore(pool, new_id=new_id),
        messages=PostgresMessageStore(pool),
        runs=PostgresRunStore(
            pool, new_id=new_id, queue_limit=queue_limit, tenant_queue_limit=tenant_queue_limit
        ),
        queue=PostgresRunQueue(pool, new_id=new_id),
        news=PostgresNewsStore(pool),
        calls=PostgresCallHistory(pool),
        recordings=PostgresRecordings(pool),
        wholes=PostgresCutResults(pool),
        memories=PostgresMemoryStore(pool),
        approvals=PostgresApprovalStore(pool),
    )


@asynccontextmanager
async def agent_pool(dsn: str, *, max_size: int = 10) -> AsyncIterator[Pool]:
    """A pool like the agent service's own."""
    async with open_pool(dsn, schema="agent", application_name="test", max_size=max_size) as pool:
        yield pool


def call(identifier: str, name: str = "look", arguments: str = "{}") -> ToolCall:
    """A tool call."""
    return ToolCall(ToolCallId(identifier), name, arguments)


def asking(*calls: ToolCall) -> Draft:
    """A message of the model's that asks for tools."""
    return Draft(Role.ASSISTANT, "", tool_calls=calls)


def result_of(asked: ToolCall, text: str = "seen") -> Draft:
    """The result of a call."""
    return Draft(Role.TOOL, text, tool_call_id=asked.id, tool_name=asked.name)


def answer(text: str = "Hello, Alice.") -> Draft:
    """A final answer."""
    return Draft(Role.ASSISTANT, text)


def request_key(content: str, identifier: str | None = None) -> RequestKey:
    """The key of a request with this content, under a new id unless one is given."""
    return RequestKey(identifier or new_id(), content.encode().ljust(32))
