"""The HTTP client that models are asked through: bounded in time, size and reach."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

_BEGUN: Final = "chatmind.begun"


@dataclass(frozen=True, slots=True)
class ModelTimeouts:
    """How long a model is waited for.

    A reply that comes whole begins when it is complete, so that only the total bounds its first
    byte.

    Attributes:
        connect_seconds: until its server takes the connection.
        first_byte_seconds: until a streamed reply begins, from the start of its request.
        chunk_seconds: between two pieces of a reply that has begun, streamed or not.
        total_seconds: until the reply is complete, with all attempts and pauses.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 60.0
    chunk_seconds: float = 30.0
    total_seconds: float = 180.0

    def of_request(self, *, streamed: bool) -> httpx2.Timeout:
        """The same for one request, as `model_http` reads it: `read` bounds the first byte."""
        return httpx2.Timeout(
            connect=self.connect_seconds,
            read=self.first_byte_seconds if streamed else self.total_seconds,
            write=self.chunk_seconds,
            pool=self.total_seconds,
        )


class ReplyTooLargeError(Exception):
    """A server sent more than a reply may have."""


class StalledReplyError(httpx2.ReadTimeout):
    """A reply began and then did not go on."""


@asynccontextmanager
async def model_http(
    timeouts: ModelTimeouts, *, max_reply_bytes: int
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that follows no redirect, as that would carry the key to wherever it points.

    Nor does it unpack a reply, as few bytes can stand for any number of them.

    Args:
        timeouts: for requests that do not bring their own.
        max_reply_bytes: a longer reply ends in ReplyTooLargeError.
    """

    async def begin(request: httpx2.Request) -> None:
        request.extensions[_BEGUN] = asyncio.get_running_loop().time()

    async def bound(response: httpx2.Response) -> None:
        response.headers.pop("content-encoding", None)
        if _announced(response) > max_reply_bytes:
            raise ReplyTooLargeError
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(
                response.stream,
                most=max_reply_bytes,
                first_until=_first_until(response.request),
                chunk_seconds=timeouts.chunk_seconds,
            )

    async with httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        timeout=timeouts.of_request(streamed=False),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        follow_redirects=False,
        event_hooks={"request": [begin], "response": [bound]},
    ) as client:
        yield client


def _announced(response: httpx2.Response) -> int:
    """The length that the server announces; 0 where it announces none that can be read."""
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() else 0


def _first_until(request: httpx2.Request) -> float:
    begun: float = request.extensions[_BEGUN]
    seconds: float = request.extensions["timeout"]["read"]
    return begun + seconds


class _Bounded(httpx2.AsyncByteStream):
    """A body that may be so long and so slow."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        *,
        most: int,
        first_until: float,
        chunk_seconds: float,
    ) -> None:
        self._stream = stream
        self._left = most
        self._first_until = first_until
        self._chunk_seconds = chunk_seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = self._stream.__aiter__()
        try:
            piece = await _next(pieces, self._first_until, httpx2.ReadTimeout("no first byte"))
            while piece is not None:
                self._left -= len(piece)
                if self._left < 0:
                    raise ReplyTooLargeError
                yield piece
                until = asyncio.get_running_loop().time() + self._chunk_seconds
                piece = await _next(pieces, until, StalledReplyError("no next piece"))
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _next(
    pieces: AsyncIterator[bytes], until: float, late: httpx2.ReadTimeout
) -> bytes | None:
    """The next piece; None at the end."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(pieces, None)
    except TimeoutError as error:
        raise late from error
