"""T-S9 and T-S15: connections that grow old are made anew; nobody notices but new replicas."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from chatmind.gateway.v1 import gateway_service_pb2 as pb
from grpc import aio

from cli.local.ports import free_ports
from services.common import channel as channels
from services.common.channel import open_channel
from services.common.keepalive import CLIENT_KEEPALIVE
from services.common.server import RunningServer, serve
from services.common.settings import ServerSettings
from tests.calls import unary_unary
from tests.common.serving import METHOD, SERVICE, RawHandler
from tests.gateway.installation import ADMIN, bearer, open_installation

AGE = {"connection_seconds": 2, "connection_grace_seconds": 0.2}
A, IN = 1, 1
NAME = "replicas.test"


class NameServer(asyncio.DatagramProtocol):
    """Answers every question for IPv4 addresses with those that it is given.

    Attributes:
        addresses: of the replicas.
        port: where it is asked.
    """

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.port = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        end = data.index(b"\0", 12) + 5
        question, (kind,) = data[12:end], struct.unpack(">H", data[end - 4 : end - 2])
        addresses = self.addresses if kind == A else []
        answers = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", A, IN, 0, 4) + socket.inet_aton(address)
            for address in addresses
        )
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0)
        self._transport.sendto(head + question + answers, addr)


@asynccontextmanager
async def name_server(*addresses: str) -> AsyncIterator[NameServer]:
    """One that knows these replicas at first."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    server.addresses = list(addresses)
    try:
        yield server
    finally:
        transport.close()


@asynccontextmanager
async def replica(address: str, folder: Path, **settings: Any) -> AsyncIterator[RunningServer]:
    """A server that answers with its own address."""

    async def behave(request: bytes, context: Any) -> bytes:
        return address.encode()

    handler: RawHandler = grpc.unary_unary_rpc_method_handler(behave)

    def register(server: aio.Server) -> None:
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"Method": handler})
        server.add_generic_rpc_handlers((handlers,))

    given = ServerSettings(
        listen=address, identity_dir=folder, drain_seconds=0, grace_seconds=0.5, **settings
    )
    async with serve(
        given, services=[SERVICE], register=register, interceptors=(), draining=asyncio.Event()
    ) as server:
        yield server


async def test_a_stream_whose_connection_grows_old_is_resumed_without_a_gap(
    tmp_path: Path, keys_database: str
) -> None:
    """T-S9: the client sees every message once, over several connections."""
    received: list[int] = []
    async with open_installation(tmp_path, keys_database, **AGE) as gateway:
        session = gateway.agent.open(ADMIN)

        async def say() -> None:
            while True:
                await session.commit("hello")
                await asyncio.sleep(random.uniform(0, 0.05))

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            saying = group.create_task(say())
            ends: list[aio.AioRpcError] = []
            while len(ends) < 2:
                after = received[-1] if received else 0
                request = pb.StreamMessagesRequest(session_id=session.id, after_sequence=after)
                try:
                    async for event in gateway.messages.StreamMessages(
                        request, metadata=bearer(gateway.key)
                    ):
                        if event.HasField("message"):
                            received.append(event.message.sequence)
                except aio.AioRpcError as error:
                    ends.append(error)
            saying.cancel()

    assert [end.code() for end in ends] == [grpc.StatusCode.UNAVAILABLE] * 2
    assert received == list(range(1, len(received) + 1))
    assert len(received) > 20


async def test_a_new_replica_gets_calls_once_connections_have_aged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-S15: nobody has to be restarted, and no call fails."""
    options = (*CLIENT_KEEPALIVE, ("grpc.dns_min_time_between_resolutions_ms", 100))
    monkeypatch.setattr(channels, "CLIENT_KEEPALIVE", options)
    port = next(free_ports())
    first, second = f"127.0.0.1:{port}", f"127.0.0.2:{port}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(replica(first, tmp_path, connection_seconds=2))
        names = await stack.enter_async_context(name_server("127.0.0.1"))
        target = f"dns://127.0.0.1:{names.port}/{NAME}:{port}"
        channel = await stack.enter_async_context(open_channel(target, max_message_bytes=10**6))
        call = unary_unary(channel, METHOD)
        before = {await call(b"", timeout=5) for _ in range(20)}
        await stack.enter_async_context(replica(second, tmp_path))
        names.addresses.append("127.0.0.2")
        async with asyncio.timeout(20):
            while await call(b"", timeout=5) != second.encode():
                pass
        after = {await call(b"", timeout=5) for _ in range(20)}

    assert before == {first.encode()}
    assert after == {first.encode(), second.encode()}
