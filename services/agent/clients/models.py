"""The models that agents can use: those that are configured, and the built-in one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from services.agent.clients.model_access import OPENAI_HOST
from services.agent.clients.model_breaker import BreakerPolicy
from services.agent.clients.model_endpoints import EndpointRules
from services.agent.clients.model_http import ModelTimeouts, Target, model_http
from services.agent.clients.model_retries import Retries
from services.agent.clients.models_file import (
    EndpointSettings,
    ModelSettings,
)
from services.agent.clients.offline_model import OfflineModel
from services.agent.clients.openai_model import Endpoint, OpenAIModel
from services.agent.clients.openai_request import Dialect
from services.agent.clients.tool_text_writing import PROMPT_TOKENS
from services.agent.domain.chat import ModelInfo, Provider, ToolProtocol
from services.agent.domain.places import Places
from services.agent.domain.ports import Model

MAX_REPLY_BYTES: Final = 16 * 1024 * 1024


class Models:
    """A fixed set of models; satisfies `ports.ModelRegistry`."""

    def __init__(self, models: Sequence[Model]) -> None:
        """Holds these models, of which one is the default."""
        self._models = {model.info.name: model for model in models}
        self._default = next(model for model in models if model.info.default)

    def get(self, name: str) -> Model | None:
        """The model of that name, an empty one standing for the default; None if unknown."""
        return self._models.get(name) if name else self._default

    def list(self) -> Sequence[ModelInfo]:
        """All of them, sorted by name, with their servers as they are now."""
        return [_described(self._models[name]) for name in sorted(self._models)]


@asynccontextmanager
async def open_models(
    settings: Sequence[ModelSettings],
    *,
    timeouts: ModelTimeouts | None = None,
    retries: Retries | None = None,
    policy: BreakerPolicy | None = None,
    places: Places | None = None,
    max_reply_bytes: int = MAX_REPLY_BYTES,
) -> AsyncIterator[Models]:
    """The models of these settings and the built-in one, which is the default if it is alone.

    Args:
        settings: the default first.
        timeouts: how long one is waited for.
        retries: bounds the repeats of a call.
        policy: when an endpoint is left alone.
        places: calls lend theirs while every endpoint of their model rests.
        max_reply_bytes: a longer reply is refused.
    """
    timeouts = timeouts or ModelTimeouts()
    async with model_http(timeouts, max_reply_bytes=max_reply_bytes) as http:
        configured = [
            OpenAIModel(
                _info(each, default=place == 0),
                [_endpoint(endpoint, each) for endpoint in each.endpoints],
                http,
                total_seconds=timeouts.total_seconds,
                retries=retries,
                policy=policy,
                places=places,
            )
            for place, each in enumerate(settings)
        ]
        yield Models([*configured, OfflineModel(default=not configured)])


def _described(model: Model) -> ModelInfo:
    if not isinstance(model, OpenAIModel):
        return model.info
    return replace(model.info, endpoints=tuple(model.endpoints))


def _info(settings: ModelSettings, *, default: bool) -> ModelInfo:
    return ModelInfo(
        name=settings.name,
        model=settings.endpoints[0].model,
        provider=Provider.OPENAI,
        context_tokens=settings.context_tokens,
        tool_protocol=settings.tool_protocol,
        default=default,
        tools_tokens=PROMPT_TOKENS if settings.tool_protocol is ToolProtocol.TAGS else 0,
        prices=settings.prices,
    )


def _endpoint(endpoint: EndpointSettings, settings: ModelSettings) -> Endpoint:
    key = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    host = urlsplit(endpoint.base_url).hostname or ""
    return Endpoint(
        target=Target(
            url=f"{endpoint.base_url.rstrip('/')}/chat/completions",
            headers={**key, **endpoint.headers},
            proxy=endpoint.proxy,
        ),
        model=endpoint.model,
        dialect=Dialect(
            send_reasoning=settings.send_reasoning,
            stream=settings.stream,
            max_tokens_field="max_completion_tokens" if host == OPENAI_HOST else "max_tokens",
        ),
        rules=EndpointRules(
            host,
            priority=endpoint.priority,
            weight=endpoint.weight,
            max_concurrent=endpoint.max_concurrent,
        ),
        secret=endpoint.api_key,
    )
