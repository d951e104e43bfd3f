"""The settings of a service whose processes tell one another of their changes."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from services.common.settings import DatabaseSettings

_SCHEMES = ("nats", "tls")


class BusSettings(DatabaseSettings):
    """The settings of such a service: what carries its hints, and how often it looks without one.

    `nats_url` names one server or more, separated by commas, with credentials if need be.
    """

    bus: Literal["postgres", "nats"] = Field(default="postgres", validation_alias="CHATMIND_BUS")
    nats_url: SecretStr | None = Field(
        default=None, validation_alias="CHATMIND_NATS_URL", validate_default=True
    )
    poll_seconds: float = Field(default=1.0, ge=0.05, le=10)

    @field_validator("nats_url")
    @classmethod
    def _names_servers(cls, url: SecretStr | None, others: ValidationInfo) -> SecretStr | None:
        if url is None and others.data.get("bus") == "nats":
            raise ValueError("required with CHATMIND_BUS=nats")
        if url is not None and not all(map(_names_server, url.get_secret_value().split(","))):
            raise ValueError("must be nats://host:port or tls://host:port, or several with commas")
        return url


def _names_server(address: str) -> bool:
    try:
        parts = urlsplit(address)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in _SCHEMES and parts.path in ("", "/") and not parts.query
