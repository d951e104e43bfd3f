"""Streams that a measurement opens, and reads as cheaply as it can."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from chatmind.gateway.v1 import gateway_service_pb2
from grpc import aio

from bench.stream.processes import Metadata, OnMessage
from services.common.keepalive import CLIENT_KEEPALIVE
from tests.calls import unary_stream

STREAM = "/chatmind.gateway.v1.GatewayService/StreamMessages"
_OPTIONS = (
    *CLIENT_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_AT_ONCE = 50
_LEAST_MESSAGE_BYTES = 100
"""What is smaller is a heartbeat."""


@asynccontextmanager
async def channels(address: str, count: int) -> AsyncIterator[list[aio.Channel]]:
    """So many connections."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(aio.insecure_channel(address, options=_OPTIONS))
            for _ in range(count)
        ]


@asynccontextmanager
async def grpc_streams(
    address: str,
    session_ids: Sequence[str],
    on_message: OnMessage,
    *,
    metadata: Metadata = (),
    connections: int = 0,
) -> AsyncIterator[None]:
    """A stream of each session, over so many connections or one each, for the block's time."""
    async with AsyncExitStack() as stack:
        ways = await stack.enter_async_context(channels(address, connections or len(session_ids)))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        streams = []
        for number, session_id in enumerate(session_ids):
            request = gateway_service_pb2.StreamMessagesRequest(
                session_id=session_id, after_sequence=0
            )
            ask = unary_stream(ways[number % len(ways)], STREAM)
            call = ask(request.SerializeToString(), metadata=metadata)
            streams.append(group.create_task(_listen(call, number, on_message)))
            if (
                number % _AT_ONCE == _AT_ONCE - 1
            ):  # thousands of calls begun in one tick fail in grpc.aio
                await call.initial_metadata()
        await call.initial_metadata()
        yield
        for stream in streams:
            stream.cancel()


async def _listen(
    call: "aio.UnaryStreamCall[bytes, bytes]", number: int, on_message: OnMessage
) -> None:
    async for message in call:
        if len(message) > _LEAST_MESSAGE_BYTES:
            on_message(number, message)


@asynccontextmanager
async def sse_streams(address: str, count: int, on_message: OnMessage) -> AsyncIterator[None]:
    """So many connections on which events come, for the block's time."""
    loop = asyncio.get_running_loop()
    _, _, port = address.rpartition(":")
    opened = []
    for number in range(count):
        transport, reader = await loop.create_connection(
            partial(_Events, number, on_message), "127.0.0.1", int(port)
        )
        transport.write(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
        opened.append(transport)
        await reader.open
    yield
    for transport in opened:
        transport.abort()


class _Events(asyncio.Protocol):
    """Reads events as a client that is written in C might: it looks for their ends only."""

    def __init__(self, number: int, on_message: OnMessage) -> None:
        self.open = asyncio.get_running_loop().create_future()
        self._number = number
        self._on_message = on_message

    def data_received(self, data: bytes) -> None:
        """Tell of each event that is long enough to be one."""
        for part in data.split(b"\n\n"):
            if len(part) > _LEAST_MESSAGE_BYTES and b"data:" in part:
                self._on_message(self._number, part)
        if not self.open.done() and b": open" in data:
            self.open.set_result(None)
