"""The HTTP client that models are asked through: bounded in time, size and reach."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

_MOST_AT_ONCE: Final = 1024 * 1024
_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "chatmind",
}


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


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    Attributes:
        url: the address.
        headers: sent with each, as a key is.
        proxy: the address of a proxy on the way; None goes straight there.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back, whole.

    Attributes:
        status: of HTTP.
        headers: by names in any case.
        body: as it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class ModelHttpError(Exception):
    """No reply came."""


class UnreachableError(ModelHttpError):
    """There is no connection to the server, or it broke."""


class ConnectTimeoutError(ModelHttpError):
    """The server did not take the connection in time."""


class NotBegunError(ModelHttpError):
    """The reply did not begin in time."""


class OutOfTimeError(ModelHttpError):
    """All the time that there was for the reply is over."""


class StalledReplyError(ModelHttpError):
    """A reply began and then did not go on."""


class ReplyTooLargeError(ModelHttpError):
    """A server sent more than a reply may have."""


class _Clock:
    """How long one reply is waited for.

    Attributes:
        limit: the time there is now.
        late: what it means if that is over.
    """

    def __init__(self, timeouts: ModelTimeouts, *, streamed: bool, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunk_seconds = timeouts.chunk_seconds
        self._deadline = deadline
        self.late: type[ModelHttpError] = NotBegunError
        begins = self._loop.time() + timeouts.first_byte_seconds if streamed else deadline
        self.limit = asyncio.timeout_at(self._bounded(begins))

    def goes_on(self) -> None:
        """A piece has come, and another is to come."""
        self.late = StalledReplyError
        self.limit.reschedule(self._bounded(self._loop.time() + self._chunk_seconds))

    def _bounded(self, until: float) -> float:
        if until >= self._deadline:
            self.late = OutOfTimeError
            return self._deadline
        return until


class ModelHttp:
    """Asks servers, over connections that stay open; made by `model_http`."""

    def __init__(
        self, session: aiohttp.ClientSession, *, timeouts: ModelTimeouts, max_reply_bytes: int
    ) -> None:
        self._session = session
        self._timeouts = timeouts
        self._max_reply_bytes = max_reply_bytes

    async def post(
        self, target: Target, body: bytes, *, streamed: bool, deadline: float
    ) -> HttpReply:
        """What a server replies, whatever its status. A call that is cancelled hangs up.

        Args:
            target: where to.
            body: what is sent.
            streamed: the reply comes in pieces, so that its first byte comes soon.
            deadline: time of the event loop at which the reply must be complete.

        Raises:
            ModelHttpError: there is no reply; its subclass says why.
        """
        clock = _Clock(self._timeouts, streamed=streamed, deadline=deadline)
        try:
            async with clock.limit:
                response = await self._begin(target, body)
                try:
                    pieces = await self._pieces(response, clock)
                finally:
                    # Hangs up, unless all was read.
                    response.close()
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectTimeoutError from error
        except TimeoutError as error:
            raise clock.late from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError from error
        return HttpReply(response.status, response.headers, b"".join(pieces))

    async def _pieces(self, response: aiohttp.ClientResponse, clock: "_Clock") -> list[bytes]:
        self._bound(response.content_length or 0)
        pieces, size = [], 0
        while not response.content.at_eof():
            pieces.append(await response.content.readany())
            size += len(pieces[-1])
            self._bound(size)
            if not response.content.at_eof():
                clock.goes_on()
        return pieces

    async def _begin(self, target: Target, body: bytes) -> aiohttp.ClientResponse:
        return await self._session.post(
            target.url,
            # In one piece, what is large would keep others waiting while it is written.
            data=body if len(body) <= _MOST_AT_ONCE else io.BytesIO(body),
            headers=target.headers,
            proxy=target.proxy,
            allow_redirects=False,
        )

    def _bound(self, size: int) -> None:
        if size > self._max_reply_bytes:
            raise ReplyTooLargeError


@asynccontextmanager
async def model_http(timeouts: ModelTimeouts, *, max_reply_bytes: int) -> AsyncIterator[ModelHttp]:
    """A client that follows no redirect, as that would carry the key to wherever it points.

    Nor does it unpack a reply, as few bytes can stand for any number of them, nor keep cookies.
    Proxies and passwords come from its targets alone, never from the environment or a file.

    Args:
        timeouts: how long a server is waited for.
        max_reply_bytes: a longer reply ends in ReplyTooLargeError.
    """
    async with aiohttp.ClientSession(
        headers=_HEADERS,
        # Calls are bounded by their endpoints, so that none waits here.
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect_seconds),
        auto_decompress=False,
        trust_env=False,
    ) as session:
        yield ModelHttp(session, timeouts=timeouts, max_reply_bytes=max_reply_bytes)
