"""A model behind an OpenAI-compatible API.

Only completed messages are ever shown, so a reply is read whole, also where it comes in pieces.
This is the one place where a request is repeated.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from services.agent.clients.model_breaker import BreakerPolicy
from services.agent.clients.model_endpoints import EndpointRules, Endpoints, RestingError, Turn
from services.agent.clients.model_http import ModelHttp, OutOfTimeError, Target
from services.agent.clients.model_retries import Retries, RetryBudget
from services.agent.clients.openai_errors import Failure, failure
from services.agent.clients.openai_reply import check_status, read_reply
from services.agent.clients.openai_request import Dialect, encoded, shape_request
from services.agent.clients.tool_text_reading import with_calls_of_text
from services.agent.clients.tool_text_writing import in_text
from services.agent.domain.chat import (
    EndpointInfo,
    ModelInfo,
    ModelReply,
    ModelRequest,
    ToolProtocol,
)
from services.agent.domain.errors import ModelUnavailableError
from services.agent.domain.places import Places
from services.agent.domain.prices import priced
from services.common.clock import Clock
from services.common.clock import now as wall_clock


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server of a model.

    Attributes:
        target: where it is asked.
        model: what it calls the model.
        dialect: how its API differs.
        rules: when it is asked.
        secret: its key, which no error may hold; empty where it wants none.
    """

    target: Target
    model: str
    dialect: Dialect
    rules: EndpointRules
    secret: str = field(default="", repr=False)


class OpenAIModel:
    """One model; satisfies `ports.Model`. `model_endpoints` tells which endpoint is asked.

    A failure that may pass is repeated: at another endpoint at once, at the same one after a pause,
    as long as the budget for repeats and the total time allow. That holds for a reply that was too
    slow, too: it is begun anew if there is time left. While every endpoint rests, a call waits for
    the end of the rest; what it asks then is no burden on the budget, as one probe at a time is let
    through. If the rest ends too late for it, it fails at once and says when it ends. While an
    endpoint has as many calls as it may, others wait for one of them to end.
    """

    def __init__(
        self,
        info: ModelInfo,
        endpoints: Sequence[Endpoint],
        http: ModelHttp,
        *,
        total_seconds: float,
        retries: Retries | None = None,
        policy: BreakerPolicy | None = None,
        places: Places | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        """Asks these endpoints.

        Args:
            info: what is told of the model.
            endpoints: at least one.
            http: asks them.
            total_seconds: how long a reply may take, with all attempts and pauses.
            retries: bounds the repeats of a call.
            policy: when an endpoint is left alone.
            places: calls lend theirs while no endpoint may be asked.
            clock: for a Retry-After that is a date.
        """
        self._info = info
        self._endpoints = endpoints
        self._http = http
        self._total_seconds = total_seconds
        self._retries = retries or Retries()
        self._budget = RetryBudget()
        self._clock = clock
        self._log = structlog.get_logger("model").bind(model=info.name)
        self._order = Endpoints(
            [each.rules for each in endpoints], policy=policy, places=places, log=self._log
        )
        self._trouble = f"The model {info.name!r} is unavailable."

    @property
    def info(self) -> ModelInfo:
        """What is told of it."""
        return self._info

    @property
    def endpoints(self) -> Sequence[EndpointInfo]:
        """Its servers as they are now."""
        return self._order.infos()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The model's whole reply.

        Raises:
            ModelUnavailableError: no endpoint answered, after all attempts or all the time.
            ModelRejectedError: an endpoint refused the request.
            EmptyAnswerError: the reply holds no message.
        """
        deadline = _now() + self._total_seconds
        self._budget.called()
        tried: list[int] = []
        while True:
            with await self._turn(tried, deadline) as turn:
                outcome = await self._attempt(self._endpoints[turn.place], request, deadline)
                self._tell(turn, outcome)
            if isinstance(outcome, ModelReply):
                return outcome
            tried.append(turn.place)
            self._log.warning(
                "model failed",
                endpoint=self._endpoints[turn.place].rules.name,
                attempt=len(tried),
                kind=outcome.kind,
            )
            await self._before_repeat(outcome, tried, deadline)

    async def _turn(self, tried: Sequence[int], deadline: float) -> Turn:
        try:
            return await self._order.turn(tried, deadline=deadline)
        except RestingError as error:
            if error.seconds == 0:
                name, seconds = self._info.name, self._total_seconds
                text = f"The model {name!r} has been busy with other calls for {seconds:g} s."
                raise ModelUnavailableError(text) from error
            seconds = max(math.ceil(error.seconds), 1)
            text = f"{self._trouble} It will be tried again in {seconds} s."
            raise ModelUnavailableError(text, retry_after=error.seconds) from error

    def _tell(self, turn: Turn, outcome: ModelReply | Failure) -> None:
        if isinstance(outcome, Failure) and outcome.retry:
            self._trouble = outcome.error.message
            turn.failed(min(outcome.retry_after, self._retries.most_retry_after_seconds))
        else:
            turn.answered()

    async def _before_repeat(self, failed: Failure, tried: Sequence[int], deadline: float) -> None:
        """Wait as long as is needed before the next attempt; raises the failure if none follows."""
        if not failed.retry or len(tried) >= self._retries.attempts or _now() >= deadline:
            raise failed.error
        if self._order.rest > 0:
            return
        if not self._budget.repeat():
            text = f"{failed.error.message} Too many of its requests fail to try again at once."
            raise ModelUnavailableError(text) from failed.error
        if not self._order.fresher(tried):
            pause = self._retries.pause(tried.count(tried[-1]))
            if _now() + pause >= deadline:
                raise failed.error
            await asyncio.sleep(pause)

    async def _attempt(
        self, endpoint: Endpoint, request: ModelRequest, deadline: float
    ) -> ModelReply | Failure:
        tags = self._info.tool_protocol is ToolProtocol.TAGS
        asked = in_text(request) if tags else request
        body = encoded(shape_request(asked, model=endpoint.model, dialect=endpoint.dialect))
        streamed = endpoint.dialect.stream
        try:
            response = await self._http.post(
                endpoint.target, body, streamed=streamed, deadline=deadline
            )
            check_status(response)
            reply = read_reply(response.body)
            if reply.usage is not None and self._info.prices is not None:
                reply = replace(reply, usage=priced(reply.usage, self._info.prices))
            return with_calls_of_text(reply, request, self._info.tool_protocol)
        except Exception as error:
            if isinstance(error, OutOfTimeError):
                return self._out_of_time()
            failed = failure(
                error,
                model=self._info.name,
                secret=endpoint.secret,
                clock=self._clock,
            )
            if failed is None:
                raise
            return failed

    def _out_of_time(self) -> Failure:
        text = f"The model {self._info.name!r} did not answer in {self._total_seconds:g} s."
        return Failure(ModelUnavailableError(text), kind="total time")


def _now() -> float:
    return asyncio.get_running_loop().time()
