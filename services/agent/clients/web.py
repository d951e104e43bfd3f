"""Gets pages over HTTP/1.1 from public addresses alone; satisfies `ports.Web`.

A name is resolved once; every address that it has must be public, and the connection goes to one of
those very addresses, so that a name which changes its mind is of no use. TLS is checked for the
name. Each request has a connection of its own and carries neither cookies nor credentials; no proxy
of the environment is used.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeAlias

import h11
import structlog

from services.agent.domain.ports import WebReply
from services.agent.domain.tools.errors import FailedToolError
from services.agent.domain.tools.fetch.addresses import is_public
from services.agent.domain.tools.fetch.urls import Url

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a host at a port; OSError where it has none."""

_CONNECT_SECONDS: Final = 5.0
_MOST_ADDRESSES: Final = 32
_MOST_TRIED: Final = 3
_MAX_HEADER_BYTES: Final = 64 * 1024
_PIECE: Final = 64 * 1024
_CLOSE_SECONDS: Final = 0.5
# zlib finds out by itself whether it is gzip or zlib.
_EITHER: Final = zlib.MAX_WBITS | 32
_GZIP: Final = b"\x1f\x8b"
# What may come around a page and within, in chunks of a byte or in answers before the answer.
_MOST_AROUND: Final = 256 * 1024
_HEADERS: Final = (
    ("user-agent", "ChatMind"),
    ("accept", "text/html, application/json, text/*;q=0.9, */*;q=0.1"),
    ("accept-encoding", "identity"),
    ("connection", "close"),
)


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, as the system finds them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class WebClient:
    """The web, as far as it is public.

    Attributes:
        resolve: finds the addresses of names.
        is_public: tells which addresses may be connected to.
        tls: what servers are checked with; the system's authorities if nothing else is given.
    """

    resolve: Resolve = resolve
    is_public: Callable[[str], bool] = is_public
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    async def get(self, url: Url, *, max_bytes: int) -> WebReply:
        """What the server answers, redirects not followed; the caller bounds the time.

        Raises:
            FailedToolError: the page cannot be had.
        """
        async with self._connected(url) as (reader, writer):
            try:
                return await _Exchange(reader, writer).get(url, max_bytes=max_bytes)
            except (OSError, h11.RemoteProtocolError, zlib.error) as error:
                structlog.get_logger("web").info("no page", host=url.host, cause=repr(error))
                raise FailedToolError(f"the server of {url.host} gave no proper answer") from error

    @asynccontextmanager
    async def _connected(
        self, url: Url
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        addresses = await self._addresses(url)
        reader, writer = await self._connect(url, addresses)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await writer.wait_closed()

    async def _addresses(self, url: Url) -> Sequence[str]:
        try:
            addresses = await self.resolve(url.host, url.port)
        except OSError as error:
            raise FailedToolError(f"no host {url.host} can be found") from error
        if not addresses or not all(self.is_public(each) for each in addresses[:_MOST_ADDRESSES]):
            structlog.get_logger("web").warning("host is not public", host=url.host)
            raise FailedToolError(f"{url.host} is not a host of the public internet")
        return addresses[:_MOST_ADDRESSES]

    async def _connect(
        self, url: Url, addresses: Iterable[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        cause: Exception | None = None
        for address in list(addresses)[:_MOST_TRIED]:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(
                        address,
                        url.port,
                        limit=_PIECE,
                        ssl=self.tls if url.scheme == "https" else None,
                        server_hostname=url.host if url.scheme == "https" else None,
                    )
            except ssl.SSLCertVerificationError as error:
                raise FailedToolError(f"the certificate of {url.host} is not valid") from error
            except (OSError, TimeoutError) as error:
                cause = error
        raise FailedToolError(f"{url.host} cannot be reached") from cause


class _Exchange:
    """One request and its answer; how much is read of all that comes is bounded, too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEADER_BYTES)
        self._room = _MOST_AROUND

    async def get(self, url: Url, *, max_bytes: int) -> WebReply:
        """What is answered; the body of a success is read up to the bound."""
        self._room = 2 * max_bytes + _MOST_AROUND
        headers = [("host", url.authority), *_HEADERS]
        asked = self._http.send(h11.Request(method="GET", target=url.target, headers=headers))
        self._writer.write((asked or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        await self._writer.drain()
        answer = await self._answer()
        told = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
        body, whole = b"", False
        if answer.status_code < HTTPStatus.MULTIPLE_CHOICES:
            body, whole = await self._body(told.get("content-encoding", ""), max_bytes)
        return WebReply(
            status=answer.status_code,
            content_type=told.get("content-type", ""),
            location=_location(answer),
            body=body,
            whole=whole,
        )

    async def _answer(self) -> h11.Response:
        """The head of the answer, those before it passed over."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("no answer")

    async def _body(self, encoding: str, most: int) -> tuple[bytes, bool]:
        """The body, unpacked, and whether it is all of it."""
        unpack = _unpacker(encoding)
        body = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            body += unpack(bytes(event.data), most + 1 - len(body))
            if len(body) > most:
                return bytes(body[:most]), False
        return bytes(body), True

    async def _next(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            piece = await self._reader.read(_PIECE)
            self._room -= len(piece)
            if self._room < 0:
                raise h11.RemoteProtocolError("too much around the page")
            self._http.receive_data(piece)


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """What unpacks the pieces of a body, each to so many bytes at most.

    Raises:
        FailedToolError: the server packed it in a way that was not asked for.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return lambda piece, _: piece
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise FailedToolError("the server packed the page in a way that cannot be read")
    return _Unpacking().unpack


class _Unpacking:
    """Unpacks gzip, which may be several parts one behind the other, or zlib.

    What follows and is no part is passed over, as browsers do.
    """

    def __init__(self) -> None:
        self._part = zlib.decompressobj(_EITHER)

    def unpack(self, piece: bytes, most: int) -> bytes:
        """What comes out of a piece, up to so many bytes."""
        unpacked = self._part.decompress(piece, most)
        while self._part.unused_data.startswith(_GZIP) and len(unpacked) < most:
            rest, self._part = self._part.unused_data, zlib.decompressobj(_EITHER)
            unpacked += self._part.decompress(rest, most - len(unpacked))
        return unpacked


def _location(answer: h11.Response) -> str:
    """Where the server redirects to; nothing where it says so more than once."""
    found = [value for name, value in answer.headers if name == b"location"]
    return found[0].decode("utf-8", errors="replace") if len(found) == 1 else ""
