"""The embedding service's settings, read from the environment."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, model_validator

from services.common.settings import Address, ServerSettings, settings_config
from services.embedding.domain.models import BUNDLED_MODEL, BackendKind

_OLLAMA_PORT = 11434
_DEFAULT_PORTS = {"http": 80, "https": 443}
_KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


def url_of_ollama(host: str) -> str:
    """The URL that `OLLAMA_HOST` stands for; scheme, host or port may be missing.

    Raises:
        ValueError: it is not the address of an HTTP server.
    """
    with_scheme = host.strip() if "://" in host else f"http://{host.strip()}"
    parts = urlsplit(with_scheme)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("must be host, host:port or an http(s) URL")
    port = parts.port or (_DEFAULT_PORTS[parts.scheme] if "://" in host else _OLLAMA_PORT)
    # OLLAMA_HOST may be what Ollama binds to: 0.0.0.0 is reached as this machine.
    name = parts.hostname if parts.hostname not in {None, "", "0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104
    netloc = f"[{name}]:{port}" if ":" in f"{name}" else f"{name}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def http_url(url: str) -> str:
    """The URL without its trailing slash.

    Raises:
        ValueError: it is not an http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("must be an http(s) URL")
    return url.rstrip("/")


Dimensions = Annotated[int, Field(ge=1, le=16_000)]
Seconds = Annotated[float, Field(gt=0, le=600)]
ModelId = Annotated[str, Field(min_length=1, max_length=200)]
Prefix = Annotated[str, Field(max_length=1000)]


class EmbeddingSettings(ServerSettings):
    """Variables that begin with `CHATMIND_EMBEDDING_`, and the usual ones of Ollama and OpenAI.

    `backend` chooses the default model. Unset, that is Ollama's if Ollama answers and has the
    model, otherwise the bundled one. The models of all other configured backends can still be
    requested by name.
    """

    model_config = settings_config("CHATMIND_EMBEDDING_")

    listen: Address = "127.0.0.1:8053"
    backend: BackendKind | None = None

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
    openai_dimensions: Dimensions | None = None
    openai_send_dimensions: bool = False
    openai_api_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias=AliasChoices("CHATMIND_EMBEDDING_OPENAI_API_KEY", "OPENAI_API_KEY"),
    )
    openai_api_key_file: Path | None = None
    openai_max_input_tokens: int = Field(default=8_192, ge=16, le=1_000_000)
    openai_timeout_seconds: Seconds = 60.0
    openai_concurrency: int = Field(default=4, ge=1, le=64)
    openai_max_call_texts: int = Field(default=64, ge=1, le=2_048)
    openai_max_call_chars: int = Field(default=100_000, ge=1, le=10_000_000)
    openai_query_prefix: Prefix = ""
    openai_document_prefix: Prefix = ""

    @property
    def serves_ollama(self) -> bool:
        """Whether Ollama's model can be requested."""
        chosen = self.backend in {None, BackendKind.OLLAMA}
        return chosen or "ollama_url" in self.model_fields_set

    @property
    def serves_openai(self) -> bool:
        """Whether the OpenAI-compatible endpoint's model can be requested."""
        return self.backend is BackendKind.OPENAI or "openai_model" in self.model_fields_set

    @property
    def openai_size(self) -> int:
        """Dimensions of the endpoint's model; 0 if neither set nor known."""
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
