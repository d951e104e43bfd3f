"""The knowledge service's settings, read from the environment."""

from typing import Annotated, Literal

from pydantic import Field

from services.common.bus.settings import BusSettings
from services.common.settings import Address, Target, settings_config

Seconds = Annotated[float, Field(gt=0, le=3600)]

_MEGABYTE = 1024 * 1024


class KnowledgeSettings(BusSettings):
    """Variables that begin with `CHATMIND_KNOWLEDGE_`, besides those that services share.

    `role` says what a process does: answer calls, ingest documents, or both. A worker serves
    nothing but its health.
    """

    model_config = settings_config("CHATMIND_KNOWLEDGE_")

    listen: Address = "127.0.0.1:8052"
    role: Literal["all", "api", "worker"] = "all"
    embedding_address: Target = "127.0.0.1:8053"

    max_upload_bytes: int = Field(default=64 * _MEGABYTE, ge=_MEGABYTE, le=512 * _MEGABYTE)
    uploads_at_once: int = Field(default=4, ge=1, le=100)
    upload_idle_seconds: Seconds = 30.0
    query_seconds: Seconds = 10.0
    remembered_queries: int = Field(default=1000, ge=0, le=100_000)
    preview_seconds: Seconds = 5.0

    documents_at_once: int = Field(default=2, ge=1, le=64)
    lease_seconds: float = Field(default=30.0, ge=0.5, le=600)
    crash_limit: int = Field(default=5, ge=1, le=100)
    outage_limit: int = Field(default=20, ge=0, le=1000)
    max_chunks: int = Field(default=100_000, ge=1, le=1_000_000)
    batch_texts: int = Field(default=32, ge=1, le=256)
    batch_tokens: int = Field(default=8192, ge=1, le=1_000_000)
    batch_seconds: Seconds = 300.0
    cut_seconds: Seconds = 30.0
    cut_seconds_per_megabyte: Seconds = 10.0
    cut_memory_megabytes: int = Field(default=4096, ge=512, le=65_536)
