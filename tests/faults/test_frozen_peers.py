"""T-S6 and T-S7: who is frozen, or behind a line that is dead, is given up within 15 seconds."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from services.common.channel import open_channel
from services.common.logging import configure_logging
from services.common.server import RunningServer, serve
from services.common.settings import ServerSettings
from tests.calls import unary_stream
from tests.common.serving import METHOD, SERVICE, RawHandler
from tests.faults.proxy import open_proxy

ROOT = Path(__file__).parents[2]
WITHIN = 15.0
BUSY = 2.0
"""Seconds that a busy machine may add."""


class Calls:
    """A method that streams one message and then nothing, for as long as its caller is there.

    Attributes:
        gone: set once a caller was given up.
    """

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def behave(self, request: bytes, context: Any) -> None:
        """Answer a call."""
        try:
            await context.write(b"open")
            await asyncio.Event().wait()
        finally:
            self.gone.set()


@asynccontextmanager
async def serving(calls: Calls) -> AsyncIterator[RunningServer]:
    """A server as every service has it."""

    def register(server: aio.Server) -> None:
        handler: RawHandler = grpc.unary_stream_rpc_method_handler(calls.behave)
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"Method": handler})
        server.add_generic_rpc_handlers((handlers,))

    settings = ServerSettings(
        listen="127.0.0.1:0", identity_dir=Path(), drain_seconds=0, grace_seconds=0
    )
    async with serve(
        settings, services=[], register=register, interceptors=(), draining=asyncio.Event()
    ) as server:
        yield server


@asynccontextmanager
async def called(address: str) -> AsyncIterator[Any]:
    """A call, over a channel as services have them, of which the first message has come."""
    async with open_channel(address, max_message_bytes=10**6) as channel:
        call = unary_stream(channel, METHOD)(b"")
        assert await call.read() == b"open"
        yield call


@asynccontextmanager
async def process(role: str, *arguments: str) -> AsyncIterator[Process]:
    """This module as a process: a server, which tells its port, or a client with a call."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, role, *arguments),
        stdout=PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}", "GRPC_VERBOSITY": "NONE"},
    )
    try:
        yield started
    finally:
        started.kill()
        await started.wait()


async def told(by: Process) -> str:
    """The next line that a process writes."""
    assert by.stdout is not None
    async with asyncio.timeout(30):
        return (await by.stdout.readline()).decode().strip()


async def seconds_until(ended: Any) -> float:
    """How long something takes that must happen."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with asyncio.timeout(40):
        await ended
    return clock() - began


async def broken(call: Any) -> None:
    """Wait until a call breaks off."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def frozen_server() -> dict[str, float]:
    """A client's wait, once its server is frozen."""
    async with process("server") as server, called(f"127.0.0.1:{await told(server)}") as call:
        server.send_signal(signal.SIGSTOP)
        return {"client of a frozen server": await seconds_until(broken(call))}


async def frozen_client() -> dict[str, float]:
    """A server's wait, once its client is frozen."""
    calls = Calls()
    async with serving(calls) as server, process("client", str(server.port)) as client:
        assert await told(client) == "open"
        client.send_signal(signal.SIGSTOP)
        return {"server of a frozen client": await seconds_until(calls.gone.wait())}


async def dead_line() -> dict[str, float]:
    """The waits of both ends of a line on which nothing arrives, and nobody is told."""
    calls = Calls()
    async with (
        serving(calls) as server,
        open_proxy(f"127.0.0.1:{server.port}") as proxy,
        called(proxy.address) as call,
    ):
        proxy.hold()
        client, theirs = await asyncio.gather(
            seconds_until(broken(call)), seconds_until(calls.gone.wait())
        )
    return {"client on a dead line": client, "server on a dead line": theirs}


async def test_each_end_notices_in_time() -> None:
    """Waits for all at once, because each takes its time."""
    waited: dict[str, float] = {}
    for each in await asyncio.gather(frozen_server(), frozen_client(), dead_line()):
        waited |= each

    late = {name: seconds for name, seconds in waited.items() if seconds > WITHIN + BUSY}
    assert len(waited) == 4
    assert late == {}


async def play(role: str, *arguments: str) -> None:
    """Be the one that is frozen."""
    configure_logging("frozen", level="warning")
    if role == "server":
        async with serving(Calls()) as server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
    else:
        async with called(f"127.0.0.1:{arguments[0]}"):
            sys.stdout.write("open\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:]))
