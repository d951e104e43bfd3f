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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

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

OPENAI_URL: Final = "https://api.openai.com/v1"
OPENAI_MODEL: Final = "gpt-5.4-mini"

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
    """

    base_url: str
    model: str
    api_key: str


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
        endpoint = EndpointSettings(_URL.validate_python(base_url or OPENAI_URL), model, api_key)
    except ValidationError as error:
        raise ModelsFileError("OPENAI_BASE_URL: must be an http:// or https:// address") from error
    return (ModelSettings(model, (endpoint,)),)


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
        EndpointSettings(
            base_url=endpoint.base_url,
            model=endpoint.model or model.model or name,
            api_key=_key(endpoint, environ, where=where),
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
    return environ[variable]
