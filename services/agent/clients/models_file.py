"""Which chat models there are: CHATMIND_MODELS_FILE, or OPENAI_API_KEY and OPENAI_BASE_URL.

    [models.deepseek-chat]
    model = "deepseek-chat"                     # what the provider calls it; the name if left out
    base_url = "https://api.deepseek.com/v1"
    api_key_env = "DEEPSEEK_API_KEY"            # the variable that holds the key
    context_tokens = 65536
    tool_protocol = "native"                    # or "tags": tools are told of in the text
    send_reasoning = false                      # thoughts must come back with the messages
    stream = false                              # replies come in pieces; some models need it
    max_concurrent = 16                         # calls at once; others wait
    [models.deepseek-chat.prices]               # of a million tokens
    currency = "USD"
    input = 0.27
    cached_input = 0.07                         # as input, if left out
    output = 1.10

    [models.local]
    [[models.local.endpoints]]                  # several: the next is asked where one cannot be …
    base_url = "http://10.0.0.5:8000/v1"
    [[models.local.endpoints]]
    base_url = "http://10.0.0.6:8000/v1"

    [models.shared]
    [[models.shared.endpoints]]                 # … and those of the same priority share the calls
    base_url = "http://10.0.0.7:8000/v1"
    priority = 0
    weight = 3
    [[models.shared.endpoints]]
    base_url = "http://10.0.0.8:8000/v1"
    priority = 0
    weight = 1

The first one is the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from services.agent.clients.model_access import (
    OPENAI_HOST,
    ModelsFileError,
    account_headers,
    checked_key,
    proxy_of,
)
from services.agent.clients.offline_model import OFFLINE_MODEL
from services.agent.clients.settings_file import Strict, read_settings_file, reason_of
from services.agent.domain.chat import ToolProtocol
from services.agent.domain.prices import Prices

OPENAI_URL: Final = f"https://{OPENAI_HOST}/v1"
OPENAI_MODEL: Final = "gpt-5.4-mini"

_OF_ENDPOINTS: Final = ("base_url", "api_key_env", "max_concurrent")
_NANOS: Final = 10**9
_Price = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=9)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$", max_length=2000)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
_URL: TypeAdapter[str] = TypeAdapter(_Url)
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One server of a model.

    Attributes:
        base_url: up to and without "/chat/completions".
        model: what it calls the model.
        api_key: its key; empty where it wants none.
        headers: sent with each request besides.
        proxy: that the environment names for it; None where there is none.
        priority: one with a higher number is asked only where none with a lower one may be.
        weight: its share of the calls among those of its priority.
        max_concurrent: calls at once; None where they are not limited.
    """

    base_url: str
    model: str
    api_key: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = field(default=None, repr=False)
    priority: int = 0
    weight: int = 1
    max_concurrent: int | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model.

    Attributes:
        name: selects it in an agent.
        endpoints: its servers.
        context_tokens: how much it reads at once; 0 where that is not known.
        tool_protocol: how it asks for tools.
        send_reasoning: its thoughts must come back with its messages.
        stream: its replies are asked for in pieces.
        prices: what its tokens cost; None where that is not known.
    """

    name: str
    endpoints: tuple[EndpointSettings, ...]
    context_tokens: int = 0
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE
    send_reasoning: bool = False
    stream: bool = False
    prices: Prices | None = None


def load_models(path: Path | None, environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
    """The models that are configured, the default first; none at all is no error.

    Args:
        path: the models file; None where there is none.
        environ: the environment; an empty variable counts as unset.

    Raises:
        ModelsFileError: the file cannot be read, or something in it or in a variable is wrong.
    """
    if path is None:
        return _from_environment(environ)
    models = read_settings_file(path, _File, error=ModelsFileError, reason=_reason).models
    if OFFLINE_MODEL in models:
        raise ModelsFileError(f"{path}: models.{OFFLINE_MODEL}: the built-in model has this name")
    currencies = {model.prices.currency for model in models.values() if model.prices}
    if len(currencies) > 1:
        raise ModelsFileError(
            f"{path}: prices are in two currencies: {', '.join(sorted(currencies))}"
        )
    return tuple(
        _settings(name, model, environ=environ, where=f"{path}: models.{name}")
        for name, model in models.items()
    )


def _from_environment(environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
    api_key, base_url = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_BASE_URL", "")
    if not api_key and not base_url:
        return ()
    model = environ.get("OPENAI_MODEL") or OPENAI_MODEL
    if model == OFFLINE_MODEL:
        raise ModelsFileError(f"OPENAI_MODEL: the built-in model has the name {OFFLINE_MODEL!r}")
    try:
        url = _URL.validate_python(base_url or OPENAI_URL)
    except ValidationError as error:
        raise ModelsFileError("OPENAI_BASE_URL: must be an http:// or https:// address") from error
    key = checked_key(api_key, variable="OPENAI_API_KEY")
    headers = account_headers(url, environ)
    endpoint = EndpointSettings(url, model, key, headers, proxy_of(url, environ))
    return (ModelSettings(model, (endpoint,)),)


class _Endpoint(Strict):
    base_url: _Url = OPENAI_URL
    model: _Name | None = None
    api_key_env: _Variable | None = None
    max_concurrent: int | None = Field(default=None, ge=1, le=10_000)


class _PoolEndpoint(_Endpoint):
    priority: int | None = Field(default=None, ge=0, le=100)
    weight: int | None = Field(default=None, ge=1, le=1000)


class _Prices(Strict):
    currency: str = Field(pattern="^[A-Z]{3}$")
    input: _Price
    cached_input: _Price | None = None
    output: _Price


class _Model(_Endpoint):
    context_tokens: int = Field(default=0, ge=0, le=100_000_000)
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE
    send_reasoning: bool = False
    stream: bool = False
    prices: _Prices | None = None
    endpoints: tuple[_PoolEndpoint, ...] = Field(default=(), max_length=16)


class _File(Strict):
    models: dict[_Name, _Model] = Field(min_length=1, max_length=100)


def _reason(problem: ErrorDetails) -> str:
    if problem["loc"][-1] == "tool_protocol":
        return 'must be "native" or "tags"'
    return reason_of(problem)


def _settings(name: str, model: _Model, *, environ: Mapping[str, str], where: str) -> ModelSettings:
    misplaced = [key for key in _OF_ENDPOINTS if key in model.model_fields_set]
    if model.endpoints and misplaced:
        raise ModelsFileError(f"{where}: {misplaced[0]} belongs into its endpoints")
    alone = _PoolEndpoint.model_validate(model.model_dump(include=set(_PoolEndpoint.model_fields)))
    pool = model.endpoints or (alone,)
    priorities = [place if e.priority is None else e.priority for place, e in enumerate(pool)]
    for endpoint, priority in zip(pool, priorities, strict=True):
        if endpoint.weight is not None and priorities.count(priority) == 1:
            told = "weight shares calls among endpoints of the same priority; it has none beside it"
            raise ModelsFileError(f"{where}: {told}")
    return ModelSettings(
        name,
        tuple(
            EndpointSettings(
                base_url=each.base_url,
                model=each.model or model.model or name,
                api_key=_key(each, environ, where=where),
                headers=account_headers(each.base_url, environ),
                proxy=proxy_of(each.base_url, environ),
                priority=priority,
                weight=each.weight or 1,
                max_concurrent=each.max_concurrent,
            )
            for each, priority in zip(pool, priorities, strict=True)
        ),
        context_tokens=model.context_tokens,
        tool_protocol=model.tool_protocol,
        send_reasoning=model.send_reasoning,
        stream=model.stream,
        prices=_prices(model.prices),
    )


def _prices(given: _Prices | None) -> Prices | None:
    if given is None:
        return None
    cached = given.input if given.cached_input is None else given.cached_input
    return Prices(
        given.currency,
        input_nanos=int(given.input * _NANOS),
        cached_input_nanos=int(cached * _NANOS),
        output_nanos=int(given.output * _NANOS),
    )


def _key(endpoint: _Endpoint, environ: Mapping[str, str], *, where: str) -> str:
    variable = endpoint.api_key_env
    if variable is None:
        return ""
    if not environ.get(variable):
        raise ModelsFileError(f"{where}: the variable {variable}, named by api_key_env, is not set")
    return checked_key(environ[variable], variable=variable)
