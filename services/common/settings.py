"""What the settings of every service share: frozen, from the environment, every number bounded."""

import sys
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

_LAST_PORT = 65_535


def _has_port(address: str) -> str:
    if int(address.rpartition(":")[2]) > _LAST_PORT:
        raise ValueError(f"the port must be at most {_LAST_PORT}")
    return address


Address = Annotated[
    str,
    StringConstraints(pattern=r"^([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"),
    AfterValidator(_has_port),
]
"""A `host:port`, such as `0.0.0.0:8050` or `[::]:8050`; port 0 lets the system choose."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def settings_config(prefix: str) -> SettingsConfigDict:
    """The pydantic-settings configuration of a class whose variables begin with `prefix`."""
    return SettingsConfigDict(
        env_prefix=prefix,
        frozen=True,
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
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
    """Settings from the environment; wrong ones are named on stderr and end the process with 2.

    What they were set to is not told: it may be a secret.
    """
    try:
        return settings()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [f"{_variable(settings, problem['loc'])}: {problem['msg']}" for problem in problems]
    except SettingsError as error:
        # One that is to be JSON and is not; the text names the field.
        lines = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.exit(2)


def _variable(settings: type[BaseSettings], location: tuple[int | str, ...]) -> str:
    """The environment variable that a location in the settings is read from."""
    prefix = str(settings.model_config.get("env_prefix", ""))
    name = "_".join(str(part) for part in location).upper()
    if not location:
        return f"{prefix}*"
    return f"{prefix}{name}" if location[0] in settings.model_fields else name
