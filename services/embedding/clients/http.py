"""JSON over HTTP to an engine: whole answers within bounded time and size, or why there is none."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import httpx

from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.models import ModelSpec

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes after decompression; 256 vectors of 4,096 numbers are about 25 MB of JSON."""

_LONGEST_WAIT = 300.0
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 3.0
# The engine or a proxy is at fault here, whatever the texts were.
_NOT_THE_TEXTS = frozenset(
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
    """No complete answer came; the message says why and may be shown to callers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: the status code.
        body: the parsed JSON; None if it is not JSON.
        retry_after: seconds to wait before the next call, if the engine says so.
    """

    status: int
    body: object
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def error(self) -> str:
        """The engine's error message, for matching and for the log; empty if there is none."""
        error = self.body.get("error", "") if isinstance(self.body, dict) else ""
        message = error.get("message", "") if isinstance(error, dict) else error
        return message[:200] if isinstance(message, str) else ""


class JsonClient:
    """Talks to one engine; opened by `open_json_client`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str, *, seconds: float) -> Answer:
        """The engine's answer to a GET, complete within so many seconds.

        Raises:
            UnreachableError: no complete answer came.
        """
        return await self._exchange("GET", path, None, seconds=seconds)

    async def post(self, path: str, payload: object, *, seconds: float) -> Answer:
        """The engine's answer to a POST of JSON, complete within so many seconds.

        Raises:
            UnreachableError: no complete answer came.
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
    """A client of the engine at `base_url`.

    Args:
        base_url: paths are appended to it.
        headers: sent with every request.
        trust_env: use the proxies that the environment names.
    """
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    # Engines drop idle connections, some after 5 s; a request sent at that moment would fail.
    limits = httpx.Limits(keepalive_expiry=_IDLE_SECONDS)
    async with httpx.AsyncClient(
        base_url=base_url,
        headers=dict(headers),
        timeout=timeout,
        limits=limits,
        trust_env=trust_env,
        # Loading certificates takes 60 ms, which plain HTTP can save.
        verify=base_url.startswith("https:"),
    ) as http:
        yield JsonClient(http)


def error_of(
    answer: Answer, spec: ModelSpec, *, not_found: str
) -> BackendUnavailableError | TextsRefusedError:
    """The error that an unsuccessful answer stands for.

    Args:
        answer: the answer.
        spec: the model that was called.
        not_found: what to say on 404.

    Returns:
        A `TextsRefusedError` if the texts may be the cause, otherwise a `BackendUnavailableError`:
        the engine is down or will not serve us, whatever the texts.
    """
    match answer.status:
        case HTTPStatus.NOT_FOUND:
            return BackendUnavailableError(spec, not_found)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return BackendUnavailableError(spec, "it does not accept our credentials")
        case status if status in _NOT_THE_TEXTS or status < HTTPStatus.BAD_REQUEST:
            why = f"it answers HTTP {status}"
            return BackendUnavailableError(spec, why, retry_after=answer.retry_after)
        case status:
            return TextsRefusedError(f"HTTP {status}")


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
    # HTTP allows a date here too; it would need both clocks to be right, and can be done without.
    told = response.headers.get("retry-after", "")
    return min(float(told), _LONGEST_WAIT) if told.isascii() and told.isdigit() else None
