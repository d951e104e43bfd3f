"""What the settings of every service share: frozen, from the environment, every number bounded."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

from pydantic import Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

Address = Annotated[str, StringConstraints(pattern=r"^[^\s:/]+:\d{1,5}$")]
"""A `host:port`; port 0 lets the system choose."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def settings_config(prefix: str) -> SettingsConfigDict:
    """The pydantic-settings configuration of a class whose variables begin with `prefix`."""
    return SettingsConfigDict(
        env_prefix=prefix, frozen=True, extra="ignore", hide_input_in_errors=True
    )


class ServerSettings(BaseSettings):
    """What every gRPC server is told.

    Subclasses set `model_config = settings_config("CHATMIND_<SERVICE>_")` and a default `listen`.
    """

    listen: Address
    identity_dir: Path = Field(
        description="holds <service>.pem, this service's key, and trusted/*.pub"
    )
    reflection: bool = True
    max_message_bytes: int = Field(default=20 * 1024 * 1024, ge=1024 * 1024, le=256 * 1024 * 1024)
    drain_seconds: float = Field(default=0.5, ge=0, le=60)
    grace_seconds: float = Field(default=5.0, ge=0, le=300)
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")


def read_settings(settings: type[SettingsT]) -> SettingsT:
    """Settings from the environment; wrong ones are named on stderr and end the process with 2."""
    try:
        return settings()
    except ValidationError as error:
        _explain(error, prefix=str(settings.model_config.get("env_prefix", "")))


def _explain(error: ValidationError, *, prefix: str) -> NoReturn:
    for problem in error.errors(include_url=False, include_input=False):
        name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
        sys.stderr.write(f"{name}: {problem['msg']}\n")
    sys.exit(2)
