"""ChatMind in real processes over a PostgreSQL of its own, with a scripted model behind it.

Gateways, replicas of the agent service that answer calls, and workers are one process each; the
model is served by this process. Every gateway has a replica of its own behind it.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from grpc import aio
from grpc_health.v1 import health_pb2

from cli.local.identity_keys import ensure_identity_keys
from cli.local.ports import free_ports
from cli.local.postgres import EmbeddedPostgres
from services.common.db import Pool, connection, open_pool
from services.common.migrate import load_migrations, migrate
from tests.calls import health_of
from tests.chaos.failpoints import VARIABLE as FAILPOINTS
from tests.chaos.model import CampaignModel, campaign_model
from tests.chaos.processes import ROOT, Nursery, Process, open_nursery
from tests.chaos.tools import LEDGER, TOOL_SECONDS

ENOUGH = 30.0
"""Seconds after which something that does not happen is taken to happen never."""

AGENT, GATEWAY = "tests.chaos.agent", "tests.chaos.gateway"
_POSTGRES = {
    # A process that is killed loses nothing that it gave to the kernel.
    "fsync": "off",
    "max_connections": "200",
    "log_min_messages": "fatal",
}
_EMPTY = """
DO $$ BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(format('agent.%I', tablename), ', ')
        FROM pg_tables WHERE schemaname = 'agent' AND tablename <> 'schema_migration');
END $$
"""
_LAPSE = """
UPDATE run SET lease_until = clock_timestamp() - interval '1 second'
WHERE lease_until IS NOT NULL
"""
_DIRECT = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a system is, and how fast.

    Attributes:
        workers: how many.
        gateways: how many, each with a replica of the agent service behind it.
        lease: seconds for which a worker holds a run.
        poll: seconds between two looks at the queue without a hint.
        crash_limit: workers that may be lost on a run.
        runs_at_once: how many runs a worker holds at most.
        model_seconds: how long the model thinks.
        tool_seconds: how long a tool takes.
    """

    workers: int = 2
    gateways: int = 1
    lease: float = 1.0
    poll: float = 0.25
    crash_limit: int = 100
    runs_at_once: int = 32
    model_seconds: float = 0.0
    tool_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one process: it can be filled again whenever that has ended.

    Attributes:
        name: of its processes.
        program: what runs there.
        environment: with what variables.
        port: where it listens; 0 where nobody calls it.
        process: the present one.
        starts: how many there have been.
    """

    nursery: Nursery
    name: str
    program: str
    environment: Mapping[str, str]
    port: int = 0
    process: Process | None = None
    starts: int = 0

    @property
    def running(self) -> Process:
        """The present process."""
        assert self.process is not None, f"{self.name} was not started"
        return self.process

    @property
    def address(self) -> str:
        """Where it is called."""
        return f"127.0.0.1:{self.port}"

    async def start(self, **more: str) -> Process:
        """Fill it, with some variables more this time."""
        self.starts += 1
        environment = {**self.environment, **more}
        self.process = await self.nursery.start(self.program, self.name, environment)
        return self.process

    async def start_armed(self, failpoints: str, **more: str) -> Process:
        """Fill it with a process that fails at these points."""
        return await self.start(**{FAILPOINTS: failpoints}, **more)


@dataclass(slots=True, eq=False)
class System:
    """All of it.

    Attributes:
        folder: state, logs and the ledger.
        size: how it was made.
        postgres: the server.
        dsn: address of its database.
        pool: connections to it, for those who look on.
        model: what all agents talk to.
        gateways: the slots of gateways.
        replicas: those of the agent services that answer calls, one for each gateway.
        workers: those of the agent services that work.
    """

    folder: Path
    size: Size
    postgres: EmbeddedPostgres
    dsn: str
    pool: Pool
    model: CampaignModel
    nursery: Nursery
    gateways: list[Slot] = field(default_factory=list)
    replicas: list[Slot] = field(default_factory=list)
    workers: list[Slot] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """The file of what tools did."""
        return self.folder / "ledger.jsonl"

    @property
    def logs(self) -> Path:
        """The folder of what processes wrote."""
        return self.folder / "logs"

    @property
    def slots(self) -> list[Slot]:
        """All of them."""
        return [*self.gateways, *self.replicas, *self.workers]

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        key = (self.folder / "admin.key").read_text("utf-8").strip()
        return (("authorization", f"Bearer {key}"),)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """What the processes wrote of an event."""
        return [
            json.loads(line)
            for log in self.logs.glob("*.log")
            for line in log.read_text("utf-8").splitlines()
            if f'"{event}"' in line
        ]

    async def fetch(self, statement: str, *given: Any) -> list[asyncpg.Record]:
        """Rows of the agent service's schema; ServiceError while the database is down."""
        async with connection(self.pool) as lent:
            return await lent.fetch(statement, *given)

    async def execute(self, script: str) -> None:
        """Run statements in the agent service's schema."""
        async with connection(self.pool) as lent:
            await lent.execute(script)

    async def serving(self, slot: Slot) -> None:
        """Wait until what is called there answers."""
        async with asyncio.timeout(ENOUGH), aio.insecure_channel(slot.address, _DIRECT) as channel:
            health = health_of(channel)
            while True:
                answer = await health.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return

    async def start_again(self, slot: Slot) -> None:
        """Fill a slot until what runs there answers; without its database a service ends."""
        async with asyncio.timeout(ENOUGH):
            while True:
                process = await slot.start()
                serving = asyncio.ensure_future(self.serving(slot))
                ended = asyncio.ensure_future(process.ended.wait())
                await asyncio.wait((serving, ended), return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
                if serving.done():
                    return serving.result()
                serving.cancel()

    async def start_answering(self) -> None:
        """Start whatever answers calls, and wait until it does."""
        for slot in (*self.replicas, *self.gateways):
            await slot.start()
        for slot in (*self.replicas, *self.gateways):
            await self.serving(slot)

    async def kill_workers(self) -> None:
        """End all that work."""
        for slot in self.workers:
            if slot.process is not None:
                await slot.process.kill()
                slot.process = None

    async def start_afresh(self) -> None:
        """Forget all runs, and whoever worked on them."""
        await self.kill_workers()
        await self.execute(_EMPTY)
        self.ledger.unlink(missing_ok=True)
        for log in self.logs.glob("worker-*.log"):
            log.unlink()
        self.model.forget()

    async def let_leases_lapse(self) -> None:
        """Do as if a lease's time had passed since anybody renewed one."""
        await self.execute(_LAPSE)

    def add_worker(self) -> Slot:
        """A further slot for a worker."""
        name = f"worker-{len(self.workers)}"
        slot = Slot(self.nursery, name, AGENT, self._environment("agent", role="worker"))
        self.workers.append(slot)
        return slot

    def add_gateway(self) -> None:
        """A further gateway with the replica behind it."""
        number = len(self.gateways)
        ports = free_ports()
        replica, gateway, http = next(ports), next(ports), next(ports)
        listen = {"CHATMIND_AGENT_LISTEN": f"127.0.0.1:{replica}"}
        environment = {**self._environment("agent", role="api"), **listen}
        self.replicas.append(
            Slot(self.nursery, f"replica-{number}", AGENT, environment, port=replica)
        )
        environment = self._environment("gateway") | {
            "CHATMIND_GATEWAY_LISTEN": f"127.0.0.1:{gateway}",
            "CHATMIND_GATEWAY_HTTP_LISTEN": f"127.0.0.1:{http}",
            "CHATMIND_GATEWAY_AGENT_ADDRESS": f"127.0.0.1:{replica}",
            "CHATMIND_GATEWAY_ADMIN_KEY_FILE": str(self.folder / "admin.key"),
            "CHATMIND_GATEWAY_MAX_STREAMS_PER_KEY": "2000",
        }
        self.gateways.append(
            Slot(self.nursery, f"gateway-{number}", GATEWAY, environment, port=gateway)
        )

    def _environment(self, service: str, *, role: str = "") -> dict[str, str]:
        size, prefix = self.size, f"CHATMIND_{service.upper()}"
        identity = self.folder / "identity" / service
        common = {
            "PATH": os.defpath,
            "GRPC_VERBOSITY": "NONE",
            "CHATMIND_DATABASE_URL": self.dsn,
            f"{prefix}_IDENTITY_DIR": str(identity),
            f"{prefix}_MIGRATE": "false",
            f"{prefix}_DATABASE_POOL": "5",
        }
        if service == "gateway":
            return common
        return common | {
            "CHATMIND_AGENT_ROLE": role,
            "CHATMIND_AGENT_LISTEN": "127.0.0.1:0",
            "CHATMIND_AGENT_LEASE_SECONDS": str(size.lease),
            "CHATMIND_AGENT_POLL_SECONDS": str(size.poll),
            "CHATMIND_AGENT_CRASH_LIMIT": str(size.crash_limit),
            "CHATMIND_AGENT_RUNS_AT_ONCE": str(size.runs_at_once),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": self.model.base_url,
            LEDGER: str(self.ledger),
            TOOL_SECONDS: str(size.tool_seconds),
        }


@asynccontextmanager
async def open_system(folder: Path, size: Size) -> AsyncIterator[System]:
    """A system whose gateways answer, for as long as the block lasts; no worker runs yet."""
    ensure_identity_keys(folder / "identity")
    make_folder(folder / "logs")
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(open_nursery(folder / "logs"))
        postgres = EmbeddedPostgres(folder / "database", settings=_POSTGRES)
        await stack.enter_async_context(postgres)
        dsn = await postgres.create_database()
        for service in ("agent", "gateway"):
            migrations = load_migrations(ROOT / "services" / service / "store" / "migrations")
            await migrate(dsn, migrations, schema=service)
        pool = await stack.enter_async_context(
            open_pool(dsn, schema="agent", application_name="chaos")
        )
        model = await stack.enter_async_context(campaign_model(seconds=size.model_seconds))
        system = System(folder, size, postgres, dsn, pool, model, nursery)
        for _ in range(size.gateways):
            system.add_gateway()
        for _ in range(size.workers):
            system.add_worker()
        await system.start_answering()
        yield system


async def until(so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so; fail if that takes too long."""
    async with asyncio.timeout(ENOUGH):
        while not await so():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.02)


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
