"""What the settings of all services share: frozen, from the environment, every number bounded."""

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

_LAST_PORT = 65_535
_HOST_AND_PORT = r"([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"


def _port_in_range(address: str) -> str:
    if int(address.rpartition(":")[2]) > _LAST_PORT:
        raise ValueError(f"the port must be at most {_LAST_PORT}")
    return address


Address = Annotated[
    str, StringConstraints(pattern=f"^{_HOST_AND_PORT}"), AfterValidator(_port_in_range)
]
"""A `host:port` to listen on, such as `0.0.0.0:8050` or `[::]:8050`; with port 0 the system
chooses."""

Target = Annotated[
    str, StringConstraints(pattern=f"^(dns:///)?{_HOST_AND_PORT}"), AfterValidator(_port_in_range)
]
"""A `host:port` to call, or `dns:///host:port` for a name that resolves to every replica."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def settings_config(prefix: str) -> SettingsConfigDict:
    """The configuration of a settings class whose variables begin with `prefix`.

    An empty variable counts as unset.
    """
    return SettingsConfigDict(
        env_prefix=prefix,
        frozen=True,
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
    )


class ServerSettings(BaseSettings):
    """The settings of every gRPC server.

    Subclasses set `model_config = settings_config("CHATMIND_<SERVICE>_")` and a default `listen`.
    """

    listen: Address
    identity_dir: Path = Field(
        description="holds <service>.pem, this service's key, and trusted/*.pub"
    )
    reflection: bool = True
    max_message_bytes: int = Field(default=20 * 1024 * 1024, ge=1024 * 1024, le=256 * 1024 * 1024)
    connection_seconds: float = Field(
        default=1800.0,
        gt=0,
        le=86_400,
        description="after which clients are asked to connect anew, and so find new replicas",
    )
    connection_grace_seconds: float = Field(
        default=600.0,
        gt=0,
        le=86_400,
        description="how long calls on the old connection go on; no less than an upload may take",
    )
    drain_seconds: float = Field(default=0.5, ge=0, le=60)
    grace_seconds: float = Field(default=5.0, ge=0, le=300)
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class DatabaseSettings(ServerSettings):
    """The settings of a gRPC server that keeps a schema in the shared database."""

    database_url: SecretStr = Field(validation_alias="CHATMIND_DATABASE_URL")
    database_direct_url: SecretStr | None = Field(
        default=None, validation_alias="CHATMIND_DATABASE_DIRECT_URL"
    )
    database_pool: int = Field(default=10, ge=2, le=100)
    migrate: bool = True

    @property
    def dsn(self) -> str:
        """The address of the database, password included; perhaps that of a pooler."""
        return self.database_url.get_secret_value()

    @property
    def direct_dsn(self) -> str:
        """The same without a pooler, for what needs a session: LISTEN, NOTIFY and migrations."""
        return (self.database_direct_url or self.database_url).get_secret_value()

    @property
    def pooled(self) -> bool:
        """Whether `dsn` leads to a pooler in transaction mode."""
        return self.database_direct_url is not None


def read_settings(settings: type[SettingsT]) -> SettingsT:
    """Read settings from the environment; wrong ones are named on stderr and end the process.

    The exit status is then 2. The wrong values are never shown: they may be secrets.
    """
    try:
        return settings()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [f"{_variable(settings, problem['loc'])}: {problem['msg']}" for problem in problems]
    except SettingsError as error:
        # A value that should be JSON is not; the message names the field only.
        lines = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.exit(2)


def _variable(settings: type[BaseSettings], location: tuple[int | str, ...]) -> str:
    """The environment variable from which a location in the settings is read."""
    prefix = str(settings.model_config.get("env_prefix", ""))
    if not location:
        return f"{prefix}*"
    name = "_".join(str(part) for part in location).upper()
    field = settings.model_fields.get(str(location[0]))
    if field is None:  # named by its variable already
        return name
    return field.validation_alias if isinstance(field.validation_alias, str) else f"{prefix}{name}"
