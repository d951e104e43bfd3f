"""How long a message takes from its commit to a client, through every service there is between."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path

from bench.agent import IDENTITY, agent_stores
from bench.knowledge import told
from bench.stream.heard import Arrivals, Timed
from bench.stream.processes import Metadata, Server, bare, gateway, key_of, serving, start
from bench.stream.servers import TEXT_CHARACTERS
from bench.stream.streams import grpc_streams
from cli.local.identity_keys import ensure_identity_keys
from cli.local.postgres import EmbeddedPostgres
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import AgentSettings, ToolCallId
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Usage
from services.common.bus.open import open_bus
from services.common.bus.settings import BusSettings
from services.common.hints import Notifier
from services.common.ids import new_id

STREAMS, PER_SECOND, CONNECTIONS = 500, 200, 10
LEASE = timedelta(hours=1)
TEXT = "x" * TEXT_CHARACTERS


class Run:
    """A run that is worked on, in which nothing takes time but the writes.

    Attributes:
        session_id: its session.
    """

    def __init__(self, claim: Claim, journal: RunJournal) -> None:
        self.session_id = claim.run.session_id
        self._journal = journal
        self._called: ToolCallId | None = None

    async def write(self) -> int:
        """Commit the model's call of a tool and the tool's result, in turns; gives the sequence."""
        if self._called is None:
            call = ToolCall(ToolCallId(new_id()), "tool", "{}")
            draft = Draft(Role.ASSISTANT, TEXT, tool_calls=(call,))
            message = await self._journal.append_assistant(draft, usage=Usage())
            self._called = call.id
        else:
            draft = Draft(Role.TOOL, TEXT, tool_call_id=self._called, tool_name="tool")
            (message,) = await self._journal.append_tool_results([draft])
            self._called = None
        return message.sequence


@dataclass(slots=True)
class Installation:
    """All that a message passes on its way.

    Attributes:
        runs: one in each session; they write messages as a worker does.
        notifier: tells of them, likewise.
        gateway: where clients are.
        metadata: of a client's calls.
        committed: when each message was, by its session's place and its sequence.
    """

    runs: list[Run]
    notifier: Notifier
    gateway: Server
    metadata: Metadata
    committed: dict[tuple[int, int], float] = field(default_factory=dict)

    async def write(self, at: int) -> None:
        """Commit a message in the session at this place."""
        sequence = await self.runs[at].write()
        self.committed[at, sequence] = time.monotonic()
        self.notifier.notify(self.runs[at].session_id)

    async def write_all(self, count: int) -> None:
        """Commit messages at a steady pace, in one session after the other."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(began + number / PER_SECOND - time.monotonic())
                group.create_task(self.write(number % STREAMS))


@asynccontextmanager
async def installed() -> AsyncIterator[Installation]:
    """PostgreSQL, an agent service that answers calls, and a gateway, for the block's time."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensure_identity_keys(folder / "keys")
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "data"))
        dsn = postgres.dsn("postgres")
        settings = AgentSettings(display_name="bench")
        stores = await stack.enter_async_context(
            agent_stores(dsn, connections=8, sessions=STREAMS, settings=settings)
        )
        bus = BusSettings.model_validate(
            {"listen": "127.0.0.1:0", "identity_dir": folder, "CHATMIND_DATABASE_URL": dsn}
        )
        await stores.ask(STREAMS)
        await stack.enter_async_context(stores.queue.together())
        claims = await stores.queue.claim(lease=LEASE, most=STREAMS)
        runs = [Run(claim, stores.queue.journal(claim)) for claim in claims]
        notifier = (
            await stack.enter_async_context(open_bus(bus, "agent", application_name="bench"))
        ).notifier
        variables = {
            "CHATMIND_DATABASE_URL": dsn,
            "CHATMIND_AGENT_LISTEN": "127.0.0.1:PORT",
            "CHATMIND_AGENT_IDENTITY_DIR": str(folder / "keys/agent"),
            "CHATMIND_AGENT_ROLE": "api",
            "CHATMIND_AGENT_LOG_LEVEL": "warning",
        }
        agent = await start("agent", ["-m", "services.agent"], variables, stack)
        await serving(agent.address)
        ours = await stack.enter_async_context(gateway(folder, dsn, agent.address))
        metadata = await key_of(folder, ours, tenant=IDENTITY.tenant, user_id=IDENTITY.user_id)
        yield Installation(runs, notifier, ours, metadata)


async def measure_delay(*, rounds: int, seconds: float) -> None:
    """The median and the tail, beside what a bare servicer needs for its own messages."""
    count = int(seconds * PER_SECOND)
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    async with through_all() as deliver, by_itself() as send:
        for at in range(rounds + 1):
            ours.append(await deliver(count))
            theirs.append(await send(count))
            print(f"round {at} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
    del ours[0], theirs[0]  # that warmed up
    print(f"\n{PER_SECOND} messages a second over {STREAMS} streams, all of which arrived")
    print(told("commit to client", list(chain(*ours))))
    print(told("bare servicer to client", list(chain(*theirs))))
    for label, share, goal in (("p50", 0.5, 3), ("p99", 0.99, 5)):
        ratios = [
            _quantile(a, share) / _quantile(b, share) for a, b in zip(ours, theirs, strict=True)
        ]
        median = statistics.median(ratios)
        print(f"{label}: {median:.1f} x the bare servicer, median of the rounds (goal {goal})")


def _quantile(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[int(share * (len(seconds) - 1))]


Deliver = Callable[[int], Awaitable[list[float]]]
"""Has so many messages delivered at a steady pace; gives the seconds that each took."""


@asynccontextmanager
async def through_all() -> AsyncIterator[Deliver]:
    """From the commit, through every service."""
    arrivals = Arrivals()
    async with installed() as there, AsyncExitStack() as stack:
        session_ids = [each.session_id for each in there.runs]
        await stack.enter_async_context(
            grpc_streams(
                there.gateway.address,
                session_ids,
                arrivals.on_message,
                metadata=there.metadata,
                connections=CONNECTIONS,
            )
        )
        await arrivals.until(STREAMS)  # the questions

        async def deliver(count: int) -> list[float]:
            there.committed.clear()
            goal = arrivals.count + count
            await there.write_all(count)
            await arrivals.until(goal)
            # A message may arrive before the commit that wrote it has returned.
            return [max(0.0, arrivals.at[each] - when) for each, when in there.committed.items()]

        yield deliver


@asynccontextmanager
async def by_itself() -> AsyncIterator[Deliver]:
    """From a servicer that makes the messages itself."""
    timed = Timed()
    async with bare("grpc") as server, AsyncExitStack() as stack:
        session_ids = [new_id() for _ in range(STREAMS)]
        await stack.enter_async_context(
            grpc_streams(server.address, session_ids, timed.on_message, connections=CONNECTIONS)
        )

        async def send(count: int) -> list[float]:
            timed.seconds.clear()
            goal = timed.count + count
            await server.send(1, count, 1 / PER_SECOND)
            await timed.until(goal)
            return list(timed.seconds)

        yield send
