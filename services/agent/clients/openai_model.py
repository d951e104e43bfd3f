"""A model behind an OpenAI-compatible API, asked through the openai SDK.

Only completed messages are ever shown, so a reply is read whole, also where it comes in pieces.
This is the one place where a request is repeated; the SDK does not. The SDK's own types for
requests and replies are passed by: they cost more than the rest of a step, and replies of other
servers do not keep them.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx2
import structlog
from openai import AsyncOpenAI

from services.agent.clients.openai_errors import Failure, failure
from services.agent.clients.openai_reply import read_reply
from services.agent.clients.openai_request import Dialect, shape_request
from services.agent.domain.chat import ModelInfo, ModelReply, ModelRequest
from services.agent.domain.errors import ModelUnavailableError
from services.common.clock import Clock
from services.common.clock import now as wall_clock

_PATH: Final = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how soon a request is repeated.

    Attributes:
        attempts: requests at most, all endpoints together.
        base_seconds: the longest pause before the first repeat; doubled with each further one.
        most_seconds: the longest pause of all.
        most_retry_after_seconds: the longest pause that a server may ask for.
    """

    attempts: int = 4
    base_seconds: float = 0.5
    most_seconds: float = 8.0
    most_retry_after_seconds: float = 20.0

    def pause(self, repeat: int, retry_after: float | None) -> float:
        """Seconds to wait before a repeat, numbered from 1: random, so that crowds disperse."""
        longest = min(self.most_seconds, self.base_seconds * 2 ** (repeat - 1))
        wanted = min(retry_after or 0.0, self.most_retry_after_seconds)
        return wanted + random.uniform(0, longest)  # noqa: S311 -- spreads load, guards nothing


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server of a model.

    Attributes:
        client: asks it; makes no repeats of its own.
        model: what it calls the model.
        dialect: how its API differs.
    """

    client: AsyncOpenAI
    model: str
    dialect: Dialect


class OpenAIModel:
    """One model; satisfies `ports.Model`. Its endpoints are tried in order."""

    def __init__(
        self,
        info: ModelInfo,
        endpoints: Sequence[Endpoint],
        *,
        total_seconds: float,
        retries: Retries | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._info = info
        self._endpoints = endpoints
        self._total_seconds = total_seconds
        self._retries = retries or Retries()
        self._clock = clock
        self._log = structlog.get_logger("model").bind(model=info.name)

    @property
    def info(self) -> ModelInfo:
        """What is told of it."""
        return self._info

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The model's whole reply.

        Raises:
            ModelUnavailableError: no endpoint answered, after all attempts or all the time.
            ModelRejectedError: an endpoint refused the request.
            EmptyAnswerError: the reply holds no message.
        """
        try:
            async with asyncio.timeout(self._total_seconds) as limit:
                return await self._attempts(request)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"The model {self._info.name!r} did not answer in {self._total_seconds:g} s."
            raise ModelUnavailableError(text) from error

    async def _attempts(self, request: ModelRequest) -> ModelReply:
        attempt = 0
        while True:
            attempt += 1
            endpoint = self._endpoints[(attempt - 1) % len(self._endpoints)]
            outcome = await self._attempt(endpoint, request)
            if isinstance(outcome, ModelReply):
                return outcome
            self._log.warning("model failed", attempt=attempt, kind=outcome.kind)
            if not outcome.retry or attempt >= self._retries.attempts:
                raise outcome.error
            rounds, place = divmod(attempt, len(self._endpoints))
            if place == 0:
                await asyncio.sleep(self._retries.pause(rounds, outcome.retry_after))

    async def _attempt(self, endpoint: Endpoint, request: ModelRequest) -> ModelReply | Failure:
        body = shape_request(request, model=endpoint.model, dialect=endpoint.dialect)
        try:
            response = await endpoint.client.post(_PATH, cast_to=httpx2.Response, body=body)
            return read_reply(response.content)
        except Exception as error:
            failed = failure(
                error,
                model=self._info.name,
                secret=endpoint.client.api_key,
                clock=self._clock,
            )
            if failed is None:
                raise
            return failed
