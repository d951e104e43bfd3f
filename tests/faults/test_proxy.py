"""The proxy does what its faults say, and nothing to other connections."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.faults.proxy import Proxy, open_proxy

ENOUGH = 10.0


@dataclass
class Echo:
    """A server that sends back what it gets, and counts who is connected."""

    port: int = 0
    open: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.open += 1
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.open -= 1
            self.gone.set()
            writer.transport.abort()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    yield echo
    server.close()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with open_proxy(f"127.0.0.1:{echo.port}") as proxy:
        yield proxy


@asynccontextmanager
async def connected(
    proxy: Proxy,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """What comes back."""
    writer.write(data)
    async with asyncio.timeout(ENOUGH):
        return await reader.readexactly(len(data))


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes for a moment, not even an end."""
    try:
        async with asyncio.timeout(0.1):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


class TestProxy:
    async def test_without_a_fault_it_only_passes_on(self, proxy: Proxy) -> None:
        async with connected(proxy) as (reader, writer):
            assert await echoed(reader, writer, b"x" * 100_000) == b"x" * 100_000
            assert (proxy.accepted, proxy.open_connections) == (1, 1)

    async def test_a_client_that_leaves_is_gone_at_the_server(
        self, proxy: Proxy, echo: Echo
    ) -> None:
        async with connected(proxy) as (reader, writer):
            await echoed(reader, writer, b"x")

        await asyncio.wait_for(echo.gone.wait(), ENOUGH)
        assert echo.open == 0

    async def test_it_refuses_and_listens_again_at_the_same_port(self, proxy: Proxy) -> None:
        port = proxy.port
        async with connected(proxy) as (reader, writer):
            await proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert await echoed(reader, writer, b"open") == b"open"

        await proxy.listen()
        async with connected(proxy) as (reader, writer):
            assert (await echoed(reader, writer, b"new"), proxy.port) == (b"new", port)

    async def test_a_reset_is_no_orderly_end(self, proxy: Proxy, echo: Echo) -> None:
        async with connected(proxy) as (reader, writer):
            await echoed(reader, writer, b"x")

            assert proxy.reset() == 1

            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), ENOUGH)
        await asyncio.wait_for(echo.gone.wait(), ENOUGH)

    async def test_what_was_held_arrives_afterwards(self, proxy: Proxy) -> None:
        async with connected(proxy) as (reader, writer):
            await echoed(reader, writer, b"x")
            proxy.hold()
            writer.write(b"late")
            assert await silent(reader)

            proxy.release()

            assert await asyncio.wait_for(reader.readexactly(4), ENOUGH) == b"late"

    async def test_a_half_open_connection_looks_open_to_its_client(
        self, proxy: Proxy, echo: Echo
    ) -> None:
        async with connected(proxy) as (reader, writer):
            await echoed(reader, writer, b"x")

            proxy.lose_servers()

            await asyncio.wait_for(echo.gone.wait(), ENOUGH)
            writer.write(b"into the void")
            assert await silent(reader)

    async def test_delay_and_rate_take_their_time(self, proxy: Proxy) -> None:
        async with connected(proxy) as (reader, writer):
            proxy.delay = 0.1
            began = time.monotonic()
            await echoed(reader, writer, b"x")
            assert time.monotonic() - began >= 0.2

            proxy.delay, proxy.bytes_per_second = 0.0, 10_000
            began = time.monotonic()
            await echoed(reader, writer, b"x" * 3000)
            assert time.monotonic() - began >= 0.25

    async def test_a_connection_is_cut_after_so_many_bytes_to_its_client(
        self, proxy: Proxy
    ) -> None:
        proxy.cut_after = 1000
        async with connected(proxy) as (reader, writer):
            assert await echoed(reader, writer, b"x" * 1000) == b"x" * 1000
            writer.write(b"y")

            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), ENOUGH)

    async def test_one_byte_arrives_changed(self, proxy: Proxy) -> None:
        proxy.corrupt_at = 3
        async with connected(proxy) as (reader, writer):
            assert await echoed(reader, writer, b"abcdef") == b"abc" + bytes([ord("d") ^ 255]) + (
                b"ef"
            )

    async def test_where_nobody_serves_the_connection_ends(self, echo: Echo) -> None:
        async with open_proxy("127.0.0.1:1") as proxy, connected(proxy) as (reader, _):
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), ENOUGH)
