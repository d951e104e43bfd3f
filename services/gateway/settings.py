"""The gateway's settings, read from the environment."""

from pathlib import Path

from pydantic import Field

from services.common.settings import Address, DatabaseSettings, Target, settings_config


class GatewaySettings(DatabaseSettings):
    """Variables that begin with `CHATMIND_GATEWAY_`; the database's is shared by all services."""

    model_config = settings_config("CHATMIND_GATEWAY_")

    listen: Address = "127.0.0.1:8050"
    http_listen: Address = "127.0.0.1:8080"
    database_pool: int = Field(default=5, ge=1, le=100)
    agent_address: Target = "127.0.0.1:8051"
    knowledge_address: Target = "127.0.0.1:8052"
    admin_key_file: Path | None = Field(
        default=None, description="holds an administrator's key, which is made if there is none"
    )
    key_hold_seconds: float = Field(default=3.0, ge=0, le=4)
    bad_keys_burst: int = Field(default=20, ge=1, le=10_000)
    bad_keys_per_minute: float = Field(default=20.0, gt=0, le=10_000)
    heartbeat_seconds: float = Field(default=15.0, gt=0, le=60)
    resume_seconds: float = Field(default=60.0, ge=0, le=3600)
    write_seconds: float = Field(default=30.0, gt=0, le=600)
    upload_seconds: float = Field(default=600.0, gt=0, le=86_400)
    max_calls: int = Field(default=1000, ge=1, le=100_000)
    max_uploads: int = Field(default=20, ge=1, le=1000)
    max_streams: int = Field(default=2000, ge=1, le=100_000)
    max_streams_per_key: int = Field(default=200, ge=1, le=100_000)
