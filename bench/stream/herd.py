"""A gateway with thousands of streams is killed, and all of its clients resume at once."""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chatmind.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc
from grpc import aio

from bench.knowledge import told
from bench.stream.agent import StandIn, stand_in
from bench.stream.processes import Metadata, Server, gateway, keep_apart, key_of
from bench.stream.streams import channels
from cli.local.identity_keys import ensure_identity_keys
from cli.local.postgres import EmbeddedPostgres
from services.common.ids import new_id
from services.common.tasks import background_tasks

PAUSES = (0.1, 1.0)
"""Seconds between which a client waits before it opens its stream again."""


@dataclass(slots=True)
class Client:
    """Follows a session on a connection of its own, and resumes.

    Attributes:
        session_id: the session.
        received: the sequences that came, in order.
        open: set while the stream is.
    """

    session_id: str
    metadata: Metadata
    herd: "Herd"
    received: list[int] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, channel: aio.Channel) -> None:
        """Receive all that there is, until cancelled."""
        stub = gateway_service_pb2_grpc.GatewayServiceStub(channel)
        while True:
            request = gateway_service_pb2.StreamMessagesRequest(
                session_id=self.session_id, after_sequence=len(self.received)
            )
            call = stub.StreamMessages(request, metadata=self.metadata)
            try:
                await call.initial_metadata()
                self.open.set()
                async for event in call:
                    if event.HasField("message"):
                        self.received.append(event.message.sequence)
                        self.herd.heard(event.message.text)
            except (aio.AioRpcError, asyncio.CancelledError) as error:
                if not isinstance(error, aio.AioRpcError) and not _broke_off(call):
                    raise
            finally:
                self.open.clear()
            await asyncio.sleep(random.uniform(*PAUSES))


def _broke_off(call: "aio.Call") -> bool:
    """Whether a cancellation is the call's own: so grpc.aio tells of some broken connections."""
    task = asyncio.current_task()
    return call.done() and task is not None and not task.cancelling()


@dataclass(slots=True)
class Herd:
    """Many clients of one gateway.

    Attributes:
        clients: they.
        seconds: how long each message took to each.
    """

    clients: list[Client] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def heard(self, text: str) -> None:
        """A message came."""
        self.seconds.append((time.monotonic_ns() - int(text.rstrip("x"))) / 1e9)

    async def all_open(self) -> None:
        """Wait until all streams are."""
        async with asyncio.timeout(120):
            for client in self.clients:
                await client.open.wait()

    async def all_have(self, count: int) -> None:
        """Wait until so many messages came to each."""
        async with asyncio.timeout(60):
            for client in self.clients:
                while len(client.received) < count:  # noqa: ASYNC110 - no event for each
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def gathered(server: Server, metadata: Metadata, count: int) -> AsyncIterator[Herd]:
    """So many clients, each with its stream open."""
    herd = Herd()
    herd.clients = [Client(new_id(), metadata, herd) for _ in range(count)]
    async with channels(server.address, count) as ways, background_tasks() as tasks:
        for number, (client, way) in enumerate(zip(herd.clients, ways, strict=True)):
            tasks.start(f"client {number}", client.follow(way))
        await herd.all_open()
        yield herd


async def measure_herd(*, streams: int, rounds: int) -> None:
    """Tell of fan-out, and of how soon all are back."""
    keep_apart()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensure_identity_keys(folder / "keys")
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "data"))
        agent = await stack.enter_async_context(stand_in())
        server = await stack.enter_async_context(
            gateway(folder, postgres.dsn("postgres"), agent.address)
        )
        metadata = await key_of(folder, server, tenant="bench", user_id="bench")
        began = time.monotonic()
        herd = await stack.enter_async_context(gathered(server, metadata, streams))
        print(f"{streams} streams opened in {time.monotonic() - began:.1f} s, a connection each")
        for at in range(rounds):
            await _tell_all(agent, herd, at + 1)
        print(told(f"one message to each, {rounds} times", herd.seconds))
        for _ in range(rounds):
            await _scatter(server, herd)
        await _tell_all(agent, herd, rounds + 1)
        exact = sum(each.received == list(range(1, rounds + 2)) for each in herd.clients)
        print(f"{exact} of {streams} have each message once and in order")


async def _tell_all(agent: StandIn, herd: Herd, count: int) -> None:
    await agent.watched(len(herd.clients))
    await agent.publish([client.session_id for client in herd.clients])
    await herd.all_have(count)


async def _scatter(server: Server, herd: Herd) -> None:
    killed = time.monotonic()
    for client in herd.clients:
        client.open.clear()
    await server.restart()
    serves = time.monotonic()
    await herd.all_open()
    back = time.monotonic()
    print(
        f"killed; serves again after {serves - killed:.1f} s, all are back after "
        f"{back - killed:.1f} s (goal 10), load {os.getloadavg()[0]:.2f}",
        flush=True,
    )
