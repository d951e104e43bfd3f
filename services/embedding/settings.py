"""What the embedding service is told, from the environment."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    model_validator,
)

from services.common.settings import Address, ServerSettings, settings_config
from services.embedding.domain.models import BUNDLED_MODEL

_OLLAMA_PORT = 11434
_DEFAULT_PORTS = {"http": 80, "https": 443}
_KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


def url_of_ollama(host: str) -> str:
    """The URL behind `OLLAMA_HOST`, which may lack scheme, host or port.

    Raises:
        ValueError: it is no address of an HTTP server.
    """
    with_scheme = host.strip() if "://" in host else f"http://{host.strip()}"
    parts = urlsplit(with_scheme)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("must be host, host:port or an http(s) URL")
    port = parts.port or (_DEFAULT_PORTS[parts.scheme] if "://" in host else _OLLAMA_PORT)
    # What Ollama binds to is where it is: 0.0.0.0 there stands for this machine here.
    name = parts.hostname if parts.hostname not in {None, "", "0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104
    netloc = f"[{name}]:{port}" if ":" in f"{name}" else f"{name}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def http_url(url: str) -> str:
    """The URL without a slash at its end.

    Raises:
        ValueError: it is no http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("must be an http(s) URL")
    return url.rstrip("/")


def _blank_is_unset(value: object) -> object:
    return None if value == "" else value


Dimensions = Annotated[int, Field(ge=1, le=16_000)]
Seconds = Annotated[float, Field(gt=0, le=600)]
ModelId = Annotated[str, Field(min_length=1, max_length=200)]
Prefix = Annotated[str, Field(max_length=1000)]


class EmbeddingSettings(ServerSettings):
    """Variables that begin with `CHATMIND_EMBEDDING_`, besides what Ollama and OpenAI go by.

    `backend` chooses the default model: Ollama's, the bundled one, or an OpenAI-compatible
    endpoint's; unset, Ollama's where it answers and has the model, else the bundled one. Models of
    the other backends that are configured can be asked for by name all the same.
    """

    model_config = settings_config("CHATMIND_EMBEDDING_")

    listen: Address = "127.0.0.1:8053"
    backend: Annotated[
        Literal["ollama", "bundled", "openai"] | None, BeforeValidator(_blank_is_unset)
    ] = None

    max_batch_size: int = Field(default=256, ge=1, le=256)
    max_pending_texts: int = Field(default=8_192, ge=1, le=1_000_000)
    max_pending_chars: int = Field(default=32 * 1024 * 1024, ge=1, le=1024**3)
    check_interval_seconds: Seconds = 15.0
    check_timeout_seconds: Seconds = 2.0

    ollama_url: Annotated[str, AfterValidator(url_of_ollama)] = Field(
        default="127.0.0.1", validate_default=True, validation_alias="OLLAMA_HOST"
    )
    ollama_model: ModelId = "bge-m3"
    ollama_dimensions: Dimensions = 1024
    ollama_max_input_tokens: int = Field(default=2_048, ge=16, le=1_000_000)
    ollama_timeout_seconds: Seconds = 120.0
    ollama_concurrency: int = Field(default=1, ge=1, le=64)
    ollama_max_call_texts: int = Field(default=16, ge=1, le=2_048)
    ollama_max_call_chars: int = Field(default=4_000, ge=1, le=10_000_000)
    ollama_query_prefix: Prefix = ""
    ollama_document_prefix: Prefix = ""

    openai_base_url: Annotated[str, AfterValidator(http_url)] = Field(
        default="https://api.openai.com/v1",
        validation_alias=AliasChoices("CHATMIND_EMBEDDING_OPENAI_BASE_URL", "OPENAI_BASE_URL"),
    )
    openai_model: ModelId = "text-embedding-3-small"
    openai_dimensions: Annotated[Dimensions | None, BeforeValidator(_blank_is_unset)] = None
    openai_send_dimensions: bool = False
    openai_api_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias=AliasChoices("CHATMIND_EMBEDDING_OPENAI_API_KEY", "OPENAI_API_KEY"),
    )
    openai_api_key_file: Annotated[Path | None, BeforeValidator(_blank_is_unset)] = None
    openai_max_input_tokens: int = Field(default=8_192, ge=16, le=1_000_000)
    openai_timeout_seconds: Seconds = 60.0
    openai_concurrency: int = Field(default=4, ge=1, le=64)
    openai_max_call_texts: int = Field(default=64, ge=1, le=2_048)
    openai_max_call_chars: int = Field(default=100_000, ge=1, le=10_000_000)
    openai_query_prefix: Prefix = ""
    openai_document_prefix: Prefix = ""

    @property
    def serves_ollama(self) -> bool:
        """Whether Ollama's model can be asked for."""
        return self.backend in {None, "ollama"} or "ollama_url" in self.model_fields_set

    @property
    def serves_openai(self) -> bool:
        """Whether the endpoint's model can be asked for."""
        return self.backend == "openai" or "openai_model" in self.model_fields_set

    @property
    def openai_size(self) -> int:
        """Numbers in a vector of the endpoint's model; 0 where nobody told."""
        return self.openai_dimensions or _KNOWN_DIMENSIONS.get(self.openai_model, 0)

    @model_validator(mode="after")
    def _fit_together(self) -> "EmbeddingSettings":
        if self.serves_openai and not self.openai_size:
            raise ValueError(
                "CHATMIND_EMBEDDING_OPENAI_DIMENSIONS must be set for a model other than "
                + ", ".join(_KNOWN_DIMENSIONS)
            )
        names = [BUNDLED_MODEL, *self._names()]
        if len(set(names)) < len(names):
            raise ValueError(f"two models have the same name among: {', '.join(names)}")
        return self

    def _names(self) -> list[str]:
        ollama = [self.ollama_model] if self.serves_ollama else []
        return ollama + ([self.openai_model] if self.serves_openai else [])
