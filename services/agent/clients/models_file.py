"""Which chat models there are: CHATMIND_MODELS_FILE, or OPENAI_API_KEY and OPENAI_BASE_URL.

    [models.deepseek-chat]
    model = "deepseek-chat"                     # what the provider calls it; the name if left out
    base_url = "https://api.deepseek.com/v1"
    api_key_env = "DEEPSEEK_API_KEY"            # the variable that holds the key
    context_tokens = 65536
    tool_protocol = "native"                    # or "tags": tools are told of in the text
    send_reasoning = false                      # thoughts must come back with the messages
    stream = false                              # replies come in pieces; some models need it

    [models.local]
    [[models.local.endpoints]]                  # several: tried in this order
    base_url = "http://10.0.0.5:8000/v1"
    model = "qwen"
    [[models.local.endpoints]]
    base_url = "http://10.0.0.6:8000/v1"
    model = "qwen"

The first one is the default.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails

from services.agent.clients.offline_model import OFFLINE_MODEL
from services.agent.domain.chat import ToolProtocol

OPENAI_HOST: Final = "api.openai.com"
OPENAI_URL: Final = f"https://{OPENAI_HOST}/v1"
OPENAI_MODEL: Final = "gpt-5.4-mini"

_ACCOUNT: Final = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
"""What tells OpenAI itself, and nobody else, whose bill it is; by the variable that holds it."""

_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$", max_length=2000)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
_URL: TypeAdapter[str] = TypeAdapter(_Url)
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


class ModelsFileError(Exception):
    """What is wrong with the configuration of models, as one line for an operator."""


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One server of a model.

    Attributes:
        base_url: up to and without "/chat/completions".
        model: what it calls the model.
        api_key: its key; empty where it wants none.
        headers: sent with each request besides.
        proxy: that the environment names for it; None where there is none.
    """

    base_url: str
    model: str
    api_key: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model.

    Attributes:
        name: selects it in an agent.
        endpoints: its servers, in the order in which they are tried.
        context_tokens: how much it reads at once; 0 where that is not known.
        tool_protocol: how it asks for tools.
        send_reasoning: its thoughts must come back with its messages.
        stream: its replies are asked for in pieces.
    """

    name: str
    endpoints: tuple[EndpointSettings, ...]
    context_tokens: int = 0
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE
    send_reasoning: bool = False
    stream: bool = False


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
    models = _read(path).models
    if OFFLINE_MODEL in models:
        raise ModelsFileError(f"{path}: models.{OFFLINE_MODEL}: the built-in model has this name")
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
    key = _checked_key(api_key, variable="OPENAI_API_KEY")
    return (ModelSettings(model, (_endpoint(url, model, key, environ),)),)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Endpoint(_Strict):
    base_url: _Url = OPENAI_URL
    model: _Name | None = None
    api_key_env: _Variable | None = None


class _Model(_Endpoint):
    context_tokens: int = Field(default=0, ge=0, le=100_000_000)
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE
    send_reasoning: bool = False
    stream: bool = False
    endpoints: tuple[_Endpoint, ...] = Field(default=(), max_length=4)


class _File(_Strict):
    models: dict[_Name, _Model] = Field(min_length=1, max_length=100)


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ModelsFileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelsFileError(f"{path}: is no TOML: {error}") from error
    except ValidationError as error:
        raise ModelsFileError("; ".join(_problems(path, error))) from error


def _problems(path: Path, error: ValidationError) -> list[str]:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        f"{path}: {'.'.join(str(part) for part in problem['loc'])}: {_told(problem)}"
        for problem in problems
    ]


def _told(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["loc"][-1] == "tool_protocol":
        return 'must be "native" or "tags"'
    return problem["msg"]


def _settings(name: str, model: _Model, *, environ: Mapping[str, str], where: str) -> ModelSettings:
    if model.endpoints and model.model_fields_set & {"base_url", "api_key_env"}:
        raise ModelsFileError(f"{where}: base_url and api_key_env belong into its endpoints")
    endpoints = tuple(
        _endpoint(
            endpoint.base_url,
            endpoint.model or model.model or name,
            _key(endpoint, environ, where=where),
            environ,
        )
        for endpoint in model.endpoints or (model,)
    )
    return ModelSettings(
        name,
        endpoints,
        context_tokens=model.context_tokens,
        tool_protocol=model.tool_protocol,
        send_reasoning=model.send_reasoning,
        stream=model.stream,
    )


def _key(endpoint: _Endpoint, environ: Mapping[str, str], *, where: str) -> str:
    variable = endpoint.api_key_env
    if variable is None:
        return ""
    if not environ.get(variable):
        raise ModelsFileError(f"{where}: the variable {variable}, named by api_key_env, is not set")
    return _checked_key(environ[variable], variable=variable)


def _checked_key(key: str, *, variable: str) -> str:
    """The key, if it can stand in a header."""
    key = key.strip()
    if not (key.isascii() and (key.isprintable() or not key)):
        raise ModelsFileError(f"{variable}: holds a character that no key has")
    return key


def _endpoint(
    base_url: str, model: str, api_key: str, environ: Mapping[str, str]
) -> EndpointSettings:
    openai_itself = urlsplit(base_url).hostname == OPENAI_HOST
    account = {
        header: environ[variable]
        for header, variable in _ACCOUNT.items()
        if openai_itself and environ.get(variable)
    }
    return EndpointSettings(base_url, model, api_key, account, proxy_of(base_url, environ))


def proxy_of(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that an environment names for an address; None if it is to be asked directly.

    Raises:
        ModelsFileError: the proxy is of a kind that is not supported.
    """
    address = urlsplit(url)
    named = (_variable(environ, f"{each}_proxy") for each in (address.scheme, "all"))
    proxy = next(filter(None, named), "")
    if not proxy or _excepted(address.hostname or "", _variable(environ, "no_proxy")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        raise ModelsFileError("the environment names a proxy that is neither http:// nor https://")
    return proxy


def _excepted(host: str, exceptions: str) -> bool:
    """Whether a host, or a domain that it is in, is among those to be asked directly."""
    for each in exceptions.lower().split(","):
        name = each.strip().lstrip(".").split(":")[0]
        if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
    return False


def _variable(environ: Mapping[str, str], name: str) -> str:
    """Its value, whether it is written small, which goes first, or in capitals."""
    return environ.get(name) or environ.get(name.upper()) or ""
