"""What the settings of all services share: frozen, from the environment, every number bounded."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

_LAST_PORT = 65_535
_HOST_AND_PORT = re.compile(r"([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_OF_ALL = "CHATMIND_"
# What Kubernetes sets for a Service that is called chatmind-agent, for example.
_OF_KUBERNETES = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$"
)


def _address(address: str) -> str:
    if not _HOST_AND_PORT.fullmatch(address):
        raise ValueError("must be host:port, such as 127.0.0.1:8050")
    if int(address.rpartition(":")[2]) > _LAST_PORT:
        raise ValueError(f"the port must be at most {_LAST_PORT}")
    return address


def _target(target: str) -> str:
    _address(target.removeprefix("dns:///"))
    return target


Address = Annotated[str, AfterValidator(_address)]
"""A `host:port` to listen on, such as `0.0.0.0:8050` or `[::]:8050`; with port 0 the system
chooses."""

Target = Annotated[str, AfterValidator(_target)]
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

    The exit status is then 2. The wrong values are never shown: they may be secrets. Variables with
    the prefix of these settings that set nothing are named as well, but end nothing.
    """
    sys.stderr.writelines(f"warning: {line}\n" for line in misspelled(settings))
    try:
        return settings()
    except (ValidationError, SettingsError) as error:
        sys.stderr.writelines(f"{line}\n" for line in _problems(settings, error))
    sys.exit(2)


def wrong_settings(settings: type[BaseSettings], told: Mapping[str, str]) -> list[str]:
    """What `read_settings` would say is wrong if the variables `told` were set besides."""
    given: dict[str, Any] = {
        key: told[variable] for variable, key in _variables(settings).items() if told.get(variable)
    }
    try:
        settings(**given)
    except (ValidationError, SettingsError) as error:
        return _problems(settings, error)
    return []


def misspelled(
    *settings: type[BaseSettings],
    besides: frozenset[str] = frozenset(),
    environment: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """A line for each variable that looks as if it set something, and sets nothing.

    Args:
        settings: what may be set. Of one class alone, only variables with its own prefix are looked
            at, since the others may be another service's.
        besides: other variables that have a meaning.
        environment: the variables, and their values.
    """
    known = {variable for each in settings for variable in _variables(each)} | besides
    prefix = _prefix(settings[0]) if len(settings) == 1 else _OF_ALL
    for name, value in sorted(environment.items()):
        # Where settings are read, upper and lower case are one.
        variable = name.upper()
        looks_like_one = variable.startswith(prefix) and not _OF_KUBERNETES.search(variable)
        if value and looks_like_one and variable not in known:
            nearest = get_close_matches(variable, known, n=1, cutoff=0.8)
            advice = f"; did you mean {nearest[0]}?" if nearest else ""
            yield f"{name} is not a setting of ChatMind{advice}"


def _problems(settings: type[BaseSettings], error: ValidationError | SettingsError) -> list[str]:
    if isinstance(error, SettingsError):
        # A value that should be JSON is not; the message names the field only.
        return [str(error)]
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        f"{_variable(settings, each['loc'])}: {each['msg'].removeprefix('Value error, ')}"
        for each in problems
    ]


def _prefix(settings: type[BaseSettings]) -> str:
    return str(settings.model_config.get("env_prefix", ""))


def _variables(settings: type[BaseSettings]) -> dict[str, str]:
    """All variables that are read, each with the argument that it stands for."""
    variables: dict[str, str] = {}
    for name, field in settings.model_fields.items():
        match field.validation_alias:
            case AliasChoices(choices=choices):
                variables |= {str(choice): str(choice) for choice in choices}
            case str(alias):
                variables[alias] = alias
            case _:
                variables[f"{_prefix(settings)}{name.upper()}"] = name
    return variables


def _variable(settings: type[BaseSettings], location: tuple[int | str, ...]) -> str:
    """The environment variable from which a location in the settings is read."""
    prefix = _prefix(settings)
    if not location:
        return f"{prefix}*"
    name = "_".join(str(part) for part in location).upper()
    field = settings.model_fields.get(str(location[0]))
    if field is None:  # named by its variable already
        return name
    return field.validation_alias if isinstance(field.validation_alias, str) else f"{prefix}{name}"
