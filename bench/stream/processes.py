"""The processes whose cost the stream's measurements tell."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
from chatmind.gateway.v1 import access_service_pb2, access_service_pb2_grpc
from grpc import aio
from grpc_health.v1 import health_pb2

from cli.local.ports import free_ports
from tests.calls import health_of

ROOT = Path(__file__).parents[2]
CORES = sorted(os.sched_getaffinity(0))
"""What all processes may run on, unless `keep_apart` was called."""

Metadata: TypeAlias = tuple[tuple[str, str], ...]
OnMessage: TypeAlias = Callable[[int, bytes], None]
"""Takes the number of a stream, and what came on it."""


@dataclass(slots=True)
class Server:
    """A process that serves.

    Attributes:
        name: what the tables call it.
        address: where.
        process: the process.
        start_again: starts another one in its place.
    """

    name: str
    address: str
    process: asyncio.subprocess.Process
    start_again: Callable[[], Awaitable[asyncio.subprocess.Process]]

    def spent(self) -> float:
        """Seconds of processor time so far, all threads together."""
        # The clock of another process, as clock_getcpuclockid makes it on Linux.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def resident(self) -> int:
        """Bytes of memory that are its own."""
        return int(psutil.Process(self.process.pid).memory_full_info().uss)

    async def send(self, count: int, ticks: int, seconds: float) -> None:
        """Bid a server of `bench.stream.servers` send."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count} {ticks} {seconds}\n".encode())

    async def restart(self) -> None:
        """Kill it, and start it again at the same address."""
        self.process.kill()
        await self.process.wait()
        self.process = await self.start_again()
        await serving(self.address)


def keep_apart() -> None:
    """Where there are several cores, leave the last one to the servers that are started later."""
    os.sched_setaffinity(0, CORES[:-1] or CORES)


async def start(
    name: str, arguments: Sequence[str], variables: Mapping[str, str], stack: AsyncExitStack
) -> Server:
    """A server that takes connections, until the stack is closed; `PORT` stands for its port."""
    port = next(free_ports())
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
        "GRPC_VERBOSITY": "NONE",
        **{key: value.replace("PORT", str(port)) for key, value in variables.items()},
    }

    async def begin() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *(each.replace("PORT", str(port)) for each in arguments)),
            stdin=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        if os.sched_getaffinity(0) < set(CORES):
            os.sched_setaffinity(process.pid, CORES[-1:])
        return process

    server = Server(name, f"127.0.0.1:{port}", await begin(), begin)

    async def end() -> None:
        server.process.kill()
        await server.process.wait()

    stack.push_async_callback(end)
    await connected(port)
    return server


async def connected(port: int) -> None:
    """Wait until somebody listens."""
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def serving(address: str) -> None:
    """Wait until a gRPC server with health says that it serves."""
    async with aio.insecure_channel(address) as channel:
        stub = health_of(channel)
        while True:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60
            )
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def gateway(
    folder: Path, dsn: str, agent_address: str, **variables: str
) -> AsyncIterator[Server]:
    """A gateway as it is, before an agent service; its keys are in `folder / "keys"`."""
    given = {
        "CHATMIND_DATABASE_URL": dsn,
        "CHATMIND_GATEWAY_LISTEN": "127.0.0.1:PORT",
        "CHATMIND_GATEWAY_HTTP_LISTEN": "127.0.0.1:0",
        "CHATMIND_GATEWAY_IDENTITY_DIR": str(folder / "keys/gateway"),
        "CHATMIND_GATEWAY_AGENT_ADDRESS": agent_address,
        "CHATMIND_GATEWAY_ADMIN_KEY_FILE": str(folder / "admin.key"),
        "CHATMIND_GATEWAY_LOG_LEVEL": "warning",
        "CHATMIND_GATEWAY_MAX_STREAMS": "5000",
        "CHATMIND_GATEWAY_MAX_STREAMS_PER_KEY": "5000",
        **variables,
    }
    async with AsyncExitStack() as stack:
        server = await start("gateway", ["-m", "services.gateway"], given, stack)
        await serving(server.address)
        yield server


async def key_of(folder: Path, server: Server, *, tenant: str, user_id: str) -> Metadata:
    """The metadata of calls of a user."""
    operator = (("authorization", f"Bearer {(folder / 'admin.key').read_text().strip()}"),)
    async with aio.insecure_channel(server.address) as channel:
        answer = await access_service_pb2_grpc.AccessServiceStub(channel).CreateApiKey(
            access_service_pb2.CreateApiKeyRequest(tenant=tenant, user_id=user_id),
            metadata=operator,
        )
    return (("authorization", f"Bearer {answer.secret}"),)


@asynccontextmanager
async def bare(kind: str) -> AsyncIterator[Server]:
    """A server of `bench.stream.servers`: `grpc` or `sse`."""
    name = {"grpc": "bare grpc.aio", "sse": "Starlette SSE"}[kind]
    async with AsyncExitStack() as stack:
        arguments = ["-m", "bench.stream.servers", kind, "PORT"]
        yield await start(name, arguments, {}, stack)
