"""The HTTP client that models are asked through: bounded in time, size and reach."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2


@dataclass(frozen=True, slots=True)
class ModelTimeouts:
    """How long a model is waited for.

    Attributes:
        connect_seconds: until its server takes the connection.
        total_seconds: until the reply is complete, all attempts together.
    """

    connect_seconds: float = 5.0
    total_seconds: float = 180.0

    def as_httpx(self) -> httpx2.Timeout:
        """The same for one request."""
        return httpx2.Timeout(self.total_seconds, connect=self.connect_seconds)


class ReplyTooLargeError(Exception):
    """A server sent more than a reply may have."""


@asynccontextmanager
async def model_http(
    timeouts: ModelTimeouts, *, max_reply_bytes: int
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that follows no redirect, as that would carry the key to wherever it points.

    Args:
        timeouts: per request.
        max_reply_bytes: a longer reply ends in ReplyTooLargeError.
    """

    async def bound(response: httpx2.Response) -> None:
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(response.stream, max_reply_bytes)

    async with httpx2.AsyncClient(
        timeout=timeouts.as_httpx(),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        follow_redirects=False,
        event_hooks={"response": [bound]},
    ) as client:
        yield client


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise ReplyTooLargeError
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
