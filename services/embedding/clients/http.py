"""JSON over HTTP with an engine: whole answers in bounded time and size, or the reason why not."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, NoReturn

import httpx

from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.models import ModelSpec

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes after decompression; 256 vectors of 4,096 numbers are about 25 MB of JSON."""

_LONGEST_WAIT = 300.0
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 3.0
_ELSEWHERE = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class UnreachableError(Exception):
    """No whole answer came; says why in words that may be shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: the status code.
        body: what the JSON says; None where it is no JSON.
        retry_after: seconds after which the engine wants to be asked again, where it says so.
    """

    status: int
    body: object
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the engine did what it was asked."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def error(self) -> str:
        """What the engine says went wrong, for matching and for the log; empty where nothing."""
        error = self.body.get("error", "") if isinstance(self.body, dict) else ""
        message = error.get("message", "") if isinstance(error, dict) else error
        return message[:200] if isinstance(message, str) else ""


class JsonClient:
    """Asks one engine; opened by `open_json_client`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str, *, seconds: float) -> Answer:
        """What the engine answers to GET within so many seconds.

        Raises:
            UnreachableError: no whole answer came.
        """
        return await self._exchange("GET", path, None, seconds=seconds)

    async def post(self, path: str, payload: object, *, seconds: float) -> Answer:
        """What the engine answers to a POST of JSON within so many seconds.

        Raises:
            UnreachableError: no whole answer came.
        """
        content = json.dumps(payload, ensure_ascii=False).encode()
        return await self._exchange("POST", path, content, seconds=seconds)

    async def _exchange(
        self, method: Literal["GET", "POST"], path: str, content: bytes | None, *, seconds: float
    ) -> Answer:
        headers = {"content-type": "application/json"} if content is not None else {}
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(method, path, content=content, headers=headers) as response,
            ):
                raw = await _read(response)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise UnreachableError(f"it did not answer within {seconds:g} s") from error
        except httpx.HTTPError as error:
            raise UnreachableError("it cannot be reached") from error
        return Answer(response.status_code, _parsed(raw), _retry_after(response))


@asynccontextmanager
async def open_json_client(
    base_url: str, *, headers: Mapping[str, str], trust_env: bool
) -> AsyncIterator[JsonClient]:
    """A client of the engine below `base_url`.

    Args:
        base_url: paths are appended to it.
        headers: sent with every request.
        trust_env: go through the proxies that the environment names.
    """
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    # Engines drop idle connections, some after 5 s; a request sent just then would fail.
    limits = httpx.Limits(keepalive_expiry=_IDLE_SECONDS)
    async with httpx.AsyncClient(
        base_url=base_url,
        headers=dict(headers),
        timeout=timeout,
        limits=limits,
        trust_env=trust_env,
        # Without TLS there is no need to spend 60 ms on loading certificates.
        verify=base_url.startswith("https:"),
    ) as http:
        yield JsonClient(http)


def refuse(answer: Answer, spec: ModelSpec, *, lacking: str) -> NoReturn:
    """Raises what an answer other than success means.

    Args:
        answer: what came.
        spec: the model that was asked.
        lacking: what to say where the engine does not know the model.

    Raises:
        BackendUnavailableError: the engine is not well or will not serve us, whatever the texts.
        TextsRefusedError: the texts may be why.
    """
    match answer.status:
        case HTTPStatus.NOT_FOUND:
            raise BackendUnavailableError(spec, lacking)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            raise BackendUnavailableError(spec, "it does not accept our credentials")
        case status if status in _ELSEWHERE or status < HTTPStatus.BAD_REQUEST:
            raise BackendUnavailableError(
                spec, f"it answers HTTP {status}", retry_after=answer.retry_after
            )
        case status:
            raise TextsRefusedError(f"HTTP {status}")


async def _read(response: httpx.Response) -> bytes:
    raw = bytearray()
    async for part in response.aiter_bytes():
        raw += part
        if len(raw) > LARGEST_ANSWER:
            raise UnreachableError("its answer does not end")
    return bytes(raw)


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _retry_after(response: httpx.Response) -> float | None:
    # An HTTP date is allowed here too; it needs both clocks right, and nobody is hurt without it.
    told = response.headers.get("retry-after", "")
    return min(float(told), _LONGEST_WAIT) if told.isascii() and told.isdigit() else None
