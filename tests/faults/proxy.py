"""A TCP proxy that does to connections what networks do to them.

    async with open_proxy("127.0.0.1:8051") as proxy:
        ...  # clients connect to proxy.address
        proxy.reset()

What is set on it holds for all connections, those that are open included:

    await proxy.refuse()            nobody listens any more; open connections stay
    await proxy.listen()            the end of `refuse`
    proxy.reset()                   both ends of every open connection get an RST
    proxy.hold()                    a black hole: nothing arrives, nobody is told
    proxy.release()                 the end of `hold`; what was held arrives, as TCP would have it
    proxy.lose_servers()            half-open: the server's end is closed, the client's is not told
    proxy.delay = 0.05              each read is passed on so many seconds later
    proxy.bytes_per_second = 1000   in each direction of each connection
    proxy.cut_after = 10_000        a connection is reset once so many bytes went to its client
    proxy.corrupt_at = 10_000       that byte on its way to the client arrives changed

The faults of one connection do not hold up another one.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_READ_BYTES = 64 * 1024
_SLICES_PER_SECOND = 20
_LINGER_ZERO = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class _Link:
    """One connection of a client, and the one that the proxy made for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    to_client: int = 0
    half_open: bool = False


class Proxy:
    """Stands between clients and one server; made by `open_proxy`.

    Attributes:
        port: where clients connect.
        accepted: how many connections there have been.
        delay: seconds between reading and passing on.
        bytes_per_second: the most in each direction of a connection; 0 for no bound.
        cut_after: bytes to the client after which a connection is reset; None for never.
        corrupt_at: place of the byte to the client that arrives changed; None for none.
    """

    def __init__(self, target: str) -> None:
        self.port = 0
        self.accepted = 0
        self.delay = 0.0
        self.bytes_per_second = 0
        self.cut_after: int | None = None
        self.corrupt_at: int | None = None
        self._host, _, port = target.rpartition(":")
        self._target_port = int(port)
        self._links: set[_Link] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where clients connect, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    async def listen(self) -> None:
        """Take connections, always at the same port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    def hold(self) -> None:
        """Let nothing arrive any more."""
        self._passing.clear()

    def release(self) -> None:
        """Let everything arrive again."""
        self._passing.set()

    def reset(self) -> int:
        """Reset every open connection; gives how many."""
        links = list(self._links)
        for link in links:
            _reset(link)
        return len(links)

    def lose_servers(self) -> None:
        """Close the server's end of every connection, which its client is not told."""
        for link in self._links:
            link.half_open = True
            _abort(link.server)

    async def close(self) -> None:
        """Refuse, reset, and wait until nothing is left."""
        await self.refuse()
        self.release()
        self.reset()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        # Even where it is cancelled before it begins.
        handler.add_done_callback(lambda _: _abort(writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, server = await asyncio.open_connection(self._host, self._target_port)
        except OSError:
            _abort(writer)
            return
        link = _Link(client=writer, server=server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, reader, server, to_client=False))
                group.create_task(self._pump(link, from_server, writer, to_client=True))
        finally:
            self._links.discard(link)
            _reset(link)

    async def _pump(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        to_client: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._passing.wait()
                await asyncio.sleep(self.delay)
                if link.half_open:
                    continue
                if to_client and not (data := self._damaged(link, data)):
                    _reset(link)
                    return
                await self._write(writer, data)
        await self._passing.wait()
        if not link.half_open:
            writer.close()

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Write at the given rate, in slices, so that a slow connection is slow throughout."""
        rate = self.bytes_per_second
        slice_bytes = max(1, rate // _SLICES_PER_SECOND) if rate else len(data)
        for begin in range(0, len(data), slice_bytes):
            part = data[begin : begin + slice_bytes]
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(len(part) / rate if rate else 0)

    def _damaged(self, link: _Link, data: bytes) -> bytes:
        """What of some bytes reaches the client; empty where the connection is cut instead."""
        begin, link.to_client = link.to_client, link.to_client + len(data)
        if self.cut_after is not None and link.to_client > self.cut_after:
            return b""
        if self.corrupt_at is not None and begin <= self.corrupt_at < link.to_client:
            at = self.corrupt_at - begin
            return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        return data


@asynccontextmanager
async def open_proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy before `host:port`, for as long as the block lasts."""
    proxy = Proxy(target)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()


def _reset(link: _Link) -> None:
    for writer in (link.client, link.server):
        _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    writer.transport.abort()
