"""The databases that the simulation runs over: in memory, and PostgreSQL."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from services.agent.domain.approval_models import Approval
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run
from services.agent.store.memory.database import MemoryDatabase
from services.agent.store.postgres.rows import APPROVAL, approval_of, message_of, run_of
from services.common.clock import now
from services.common.db import Pool, connection
from tests.agent.database import empty
from tests.contracts.agent_stores import (
    Stores,
    agent_pool,
    memory_stores,
    postgres_stores,
)
from tests.contracts.simulation.loop import HandLoop

START = datetime(2026, 6, 1, tzinfo=UTC)

_SHIFT_APPROVALS = "UPDATE approval SET expire_time = expire_time - $1::interval"
_SHIFT = "UPDATE run SET lease_until = lease_until - $1::interval WHERE lease_until IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is stored, at one moment."""

    messages: Mapping[SessionId, Sequence[Message]]
    runs: Mapping[RunId, Run]
    approvals: Sequence[Approval] = ()


@dataclass(eq=False)
class Host:
    """What a process runs on.

    Attributes:
        loop: its event loop.
        stores: its way to the database.
    """

    loop: HandLoop
    stores: Stores


class Backend(Protocol):
    """A database with its clock, and hosts that reach it.

    Attributes:
        now: the time by hand, in seconds; every host goes by it.
    """

    now: float

    def clock(self) -> datetime:
        """The wall clock, as the database has it."""

    def clear(self) -> None:
        """Delete everything that is stored."""

    def host(self) -> Host:
        """One that is free."""

    def release(self, host: Host) -> None:
        """Let it be used again."""

    def pass_time(self, seconds: float) -> None:
        """Let time go on."""

    def jump(self, seconds: float) -> None:
        """Let the database's clock jump ahead, as far as leases go, and no other."""

    def snapshot(self) -> Snapshot:
        """All that is stored."""


@dataclass
class MemoryBackend:
    """Stores in memory, on the clock by hand."""

    now: float = 0.0
    _free: list[Host] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clear()

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.now)

    def clear(self) -> None:
        numbers = iter(range(1, 1_000_000))
        self._database = database = MemoryDatabase(
            clock=self.clock, new_id=lambda: str(UUID(int=next(numbers)))
        )
        self._stores = memory_stores(database)

    def host(self) -> Host:
        loop = self._free.pop().loop if self._free else HandLoop(lambda: self.now)
        return Host(loop, self._stores)

    def release(self, host: Host) -> None:
        self._free.append(host)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def jump(self, seconds: float) -> None:
        for stored in self._database.runs.values():
            if stored.lease_until is not None:
                stored.lease_until -= timedelta(seconds=seconds)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            {session: tuple(said) for session, said in self._database.messages.items()},
            {run_id: stored.run for run_id, stored in self._database.runs.items()},
            [
                approval
                for stored in self._database.runs.values()
                for approval in self._database.approvals(stored)
            ],
        )

    def close(self) -> None:
        """Close all hosts, which must be free."""
        for host in self._free:
            host.loop.close()


class PostgresBackend:
    """Stores in PostgreSQL, by its own clock; leases are shortened to let time pass."""

    clock = staticmethod(now)

    def __init__(self, dsn: str) -> None:
        self.now = 0.0
        self._dsn = dsn
        self._opened: list[tuple[HandLoop, AsyncExitStack]] = []
        self._free: list[Host] = []
        self._loop, self._pool = self._connect()

    def clear(self) -> None:
        self._loop.do(empty(self._dsn))

    def host(self) -> Host:
        if self._free:
            return self._free.pop()
        loop, pool = self._connect()
        return Host(loop, postgres_stores(pool))

    def release(self, host: Host) -> None:
        self._free.append(host)

    def pass_time(self, seconds: float) -> None:
        self.jump(seconds)
        self._loop.do(self._shift(_SHIFT_APPROVALS, seconds))
        self.now += seconds

    def jump(self, seconds: float) -> None:
        self._loop.do(self._shift(_SHIFT, seconds))

    async def _shift(self, statement: str, seconds: float) -> None:
        async with connection(self._pool) as lent:
            await lent.execute(statement, timedelta(seconds=seconds))

    def snapshot(self) -> Snapshot:
        return self._loop.do(_snapshot(self._pool))

    def close(self) -> None:
        """Close all hosts, which must be free."""
        for loop, stack in self._opened:
            loop.do(stack.aclose())
            loop.close()

    def _connect(self) -> tuple[HandLoop, Pool]:
        loop, stack = HandLoop(lambda: self.now), AsyncExitStack()
        pool = loop.do(stack.enter_async_context(agent_pool(self._dsn, max_size=4)))
        self._opened.append((loop, stack))
        return loop, pool


async def _snapshot(pool: Pool) -> Snapshot:
    async with connection(pool) as lent:
        said = await lent.fetch("SELECT * FROM chat_message ORDER BY session_id, sequence")
        runs = [run_of(row) for row in await lent.fetch("SELECT * FROM run")]
        asked = await lent.fetch(f"SELECT {APPROVAL} FROM approval ORDER BY session_id, turn, step")
        approvals = [approval_of(row) for row in asked]
    messages = defaultdict[SessionId, list[Message]](list)
    for row in said:
        message = message_of(row)
        messages[message.session_id].append(message)
    return Snapshot(messages, {run.id: run for run in runs}, approvals)
