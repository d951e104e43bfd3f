"""A small HTTP server on loopback that plays an engine, well-behaved or not."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """What came in; `body` is the parsed JSON, None for none."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: object


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes out; `body` is sent as it is when it is bytes, as JSON otherwise."""

    status: int = 200
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The bytes of the whole answer."""
        raw = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        lines = [f"HTTP/1.1 {self.status} X", f"content-length: {len(raw)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + raw


Handler = Callable[[Request], Awaitable[Reply | None]]
"""Answers; None hangs up without a word."""


class FakeServer:
    """Keeps what it was asked; `url` is where it listens."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._came = asyncio.Condition()
        self.requests: list[Request] = []
        self.url = ""

    def asked(self, path: str) -> list[Request]:
        """The requests for a path."""
        return [each for each in self.requests if each.path == path]

    async def until_asked(self, path: str) -> None:
        """Waits for the first request for a path."""
        async with asyncio.timeout(10), self._came:
            await self._came.wait_for(lambda: bool(self.asked(path)))

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["FakeServer"]:
        """Listens until the block ends, then drops every connection."""
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._converse(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                connections.discard(task)

        server = await asyncio.start_server(accept, "127.0.0.1", port, limit=2**26)
        host, bound, *_ = server.sockets[0].getsockname()
        self.url = f"http://{host}:{bound}"
        try:
            yield self
        finally:
            server.close()
            pending = list(connections)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, path, _ = first.split(" ")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines if line)
            }
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method, path, headers, json.loads(raw) if raw else None)
            async with self._came:
                self.requests.append(request)
                self._came.notify_all()
            reply = await self._handler(request)
            if reply is None:
                return
            writer.write(reply.encoded())
            await writer.drain()
