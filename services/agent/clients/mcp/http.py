"""A server at an address: asked there and nowhere else, with its credentials, bounded in size.

What fails on the way to one answer fails that answer alone: it is turned into an error reply, as
the SDK would otherwise end the connection, and all other calls with it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from services.agent.clients.mcp.file import HttpSettings
from services.agent.clients.mcp.stdio import MAX_MESSAGE_BYTES
from services.agent.clients.mcp.surrogates import Mender

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 300.0
"""How long a stream of events may be silent."""

BETWEEN_STREAMS: Final = 1.0
"""Seconds between two attempts to open a stream of events; a server may ask for less."""

_METHOD_HEADER = "mcp-method"
_LISTENING = "subscriptions/listen"
_LAST_EVENT = "last-event-id"
_SESSION_HEADER = "mcp-session-id"
_FORGOTTEN = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST)


class BodyError(httpx2.StreamError):
    """A body is too long, or broke off; the SDK takes it as an answer that cannot be read."""


@asynccontextmanager
async def http_streams(settings: HttpSettings, *, timeout_seconds: float) -> AsyncIterator[object]:
    """The streams of a server at an address.

    Args:
        settings: where, and what it is sent with each request.
        timeout_seconds: how long an answer may be silent.
    """
    guard = _Guard(settings, timeout_seconds)
    async with (
        httpx2.AsyncClient(
            transport=guard,
            headers={"accept-encoding": "identity"},
            timeout=httpx2.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        ) as client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


class _Guard(httpx2.AsyncBaseTransport):
    """Lets requests to one origin through."""

    def __init__(self, settings: HttpSettings, timeout_seconds: float) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16), trust_env=False
        )
        self._origin = _origin(httpx2.URL(settings.url))
        self._headers = settings.headers
        self._timeout = timeout_seconds
        self._next_stream = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != self._origin:
            return _failed("it redirects to another origin, which is not followed")
        if request.method == "GET":
            if _LAST_EVENT in request.headers:
                # It would be asked for again for as long as it breaks off.
                return httpx2.Response(405)
            await self._wait_for_turn()
        if request.method == "GET" or request.headers.get(_METHOD_HEADER) == _LISTENING:
            request.extensions["timeout"]["read"] = IDLE_SECONDS
        # Here and not in the client, so that they are sent to this origin alone.
        request.headers.update(self._headers)
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            return _failed(_why(error))
        bounded = _bounded(response)
        if bounded.is_client_error and _SESSION_HEADER in request.headers:
            return await _of_session(bounded)
        return bounded

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _wait_for_turn(self) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(self._next_stream, now)
        self._next_stream = turn + BETWEEN_STREAMS
        await asyncio.sleep(turn - now)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _why(error: httpx2.TransportError) -> str:
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "it cannot be reached"
        case httpx2.TimeoutException():
            return "it took too long to answer"
    return "the connection to it broke off"


def _failed(why: str) -> httpx2.Response:
    told = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": why}}
    return httpx2.Response(
        503, headers={"content-type": "application/json"}, content=json.dumps(told)
    )


def _bounded(response: httpx2.Response) -> httpx2.Response:
    # A packed body could stand for any number of bytes, though none was asked for.
    response.headers.pop("content-encoding", None)
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Body(response.stream, None if events else MAX_MESSAGE_BYTES)
    return response


async def _of_session(response: httpx2.Response) -> httpx2.Response:
    """An error reply to what was asked within a session.

    A 404 says that the server has forgotten the session, and so do many servers with a 400 that
    speaks of it. The SDK takes it so only where the reply has no body.
    """
    if response.status_code not in _FORGOTTEN:
        return response
    try:
        body = await response.aread()
    except httpx2.StreamError:
        body = b""
    finally:
        await response.aclose()
    if response.status_code == HTTPStatus.BAD_REQUEST and b"session" not in body.lower():
        return httpx2.Response(400, headers=response.headers, content=body)
    return httpx2.Response(404)


class _Body(httpx2.AsyncByteStream):
    """A body that fails in one way only."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int | None) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, mender = 0, Mender()
        try:
            async for piece in self._stream:
                size += len(piece)
                if self._most is not None and size > self._most:
                    raise BodyError(f"the answer is over {self._most} bytes")
                yield mender.mended(piece)
            yield mender.rest()
        except httpx2.TransportError as error:
            raise BodyError(_why(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()
