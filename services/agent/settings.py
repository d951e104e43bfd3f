"""The agent service's settings, read from the environment."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from services.agent.domain.tools.fetch.urls import HostRule, read_rules
from services.common.bus.settings import BusSettings
from services.common.settings import Address, Target, settings_config


def _hosts(text: str) -> str:
    read_rules(text)
    return text


Seconds = Annotated[float, Field(gt=0, le=3600)]


class AgentServiceSettings(BusSettings):
    """Variables that begin with `CHATMIND_AGENT_`, besides those that services share.

    `role` says what a process does: answer calls, work on runs, or both. A worker serves nothing
    but its health. `hooks` and `tools` name modules that bring some, separated by commas.
    """

    model_config = settings_config("CHATMIND_AGENT_")

    listen: Address = "127.0.0.1:8051"
    role: Literal["all", "api", "worker"] = "all"
    knowledge_address: Target = "127.0.0.1:8052"
    models_file: Path | None = Field(default=None, validation_alias="CHATMIND_MODELS_FILE")
    sql_file: Path | None = Field(default=None, validation_alias="CHATMIND_SQL_FILE")
    mcp_file: Path | None = Field(default=None, validation_alias="CHATMIND_MCP_FILE")
    queue_limit: int = Field(default=20, ge=1, le=100)
    tenant_queue_limit: int = Field(default=1000, ge=1, le=100_000)
    heartbeat_seconds: Seconds = 15.0
    write_seconds: Seconds = 30.0
    runs_at_once: int = Field(default=32, ge=1, le=1000)
    runs_waiting: int = Field(default=256, ge=0, le=10_000)
    lease_seconds: float = Field(default=30.0, ge=0.5, le=600)
    crash_limit: int = Field(default=5, ge=1, le=100)
    model_seconds: Seconds = 180.0
    model_connect_seconds: Seconds = 5.0
    model_first_byte_seconds: Seconds = 60.0
    model_chunk_seconds: Seconds = 30.0
    tool_seconds: Seconds = 60.0
    approval_seconds: float = Field(default=600.0, gt=0, le=86_400)
    hooks: str = Field(default="", max_length=10_000)
    tools: str = Field(default="", max_length=10_000)
    fetch_hosts: Annotated[str, Field(max_length=10_000), AfterValidator(_hosts)] = ""

    @property
    def fetch_rules(self) -> tuple[HostRule, ...]:
        """What `http_fetch` may read; without any there is no such tool."""
        return read_rules(self.fetch_hosts)
