"""A whole embedding service in this process, and a caller that it trusts."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import grpc
import pytest
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2, embedding_service_pb2_grpc
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from cli.local.identity_keys import ensure_identity_keys
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner, load_signing_key
from services.common.settings import read_settings
from services.embedding.main import running_embedding
from services.embedding.settings import EmbeddingSettings

IDENTITY = Identity(tenant="acme", user_id="ann")
QUERY = embedding_pb2.PURPOSE_QUERY
DOCUMENT = embedding_pb2.PURPOSE_DOCUMENT

Response = embedding_service_pb2.EmbedResponse


class Caller:
    """Calls the service as the knowledge service would."""

    def __init__(self, channel: aio.Channel, keys: Path) -> None:
        self.channel = channel
        self.stub = embedding_service_pb2_grpc.EmbeddingServiceStub(channel)
        self._keys = keys
        self._calls: dict[tuple[str, str], OutgoingCalls] = {}

    def metadata(
        self, *, issuer: str = "knowledge", audience: str = "embedding"
    ) -> tuple[tuple[str, str], ...]:
        """The metadata of a call by one service to another."""
        if (issuer, audience) not in self._calls:
            key = load_signing_key(self._keys / issuer / f"{issuer}.pem")
            signer = IdentitySigner(issuer, key, audience=audience, clock=now)
            self._calls[issuer, audience] = OutgoingCalls(signer)
        return self._calls[issuer, audience].metadata(IDENTITY)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str = "",
        purpose: embedding_pb2.Purpose.ValueType = DOCUMENT,
    ) -> Response:
        """Embeds."""
        request = embedding_service_pb2.EmbedRequest(model=model, texts=texts, purpose=purpose)
        response: Response = await self.stub.Embed(request, metadata=self.metadata(), timeout=30)
        return response

    async def models(self) -> dict[str, embedding_pb2.EmbeddingModel]:
        """The models by name."""
        request = embedding_service_pb2.ListModelsRequest()
        response = await self.stub.ListModels(request, metadata=self.metadata(), timeout=30)
        return {model.name: model for model in response.models}


@asynccontextmanager
async def embedding_service(
    folder: Path, patch: pytest.MonkeyPatch, variables: Mapping[str, str]
) -> AsyncIterator[Caller]:
    """The service with these environment variables and no others that it knows."""
    set_environment(folder, patch, variables)
    settings = read_settings(EmbeddingSettings)
    async with (
        running_embedding(settings) as server,
        open_channel(
            f"127.0.0.1:{server.port}", max_message_bytes=settings.max_message_bytes
        ) as channel,
    ):
        yield Caller(channel, folder)


def set_environment(folder: Path, patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Set these variables, where to listen and where the keys are; nothing else stays set."""
    ensure_identity_keys(folder)
    for name in ("OLLAMA_HOST", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        patch.delenv(name, raising=False)
    fixed = {
        "CHATMIND_EMBEDDING_LISTEN": "127.0.0.1:0",
        "CHATMIND_EMBEDDING_IDENTITY_DIR": str(folder / "embedding"),
        "CHATMIND_EMBEDDING_DRAIN_SECONDS": "0",
    }
    for name, value in {**fixed, **variables}.items():
        patch.setenv(name, value)


def retry_seconds(error: aio.AioRpcError) -> float | None:
    """After how long the error says to ask again; None where it does not."""
    status = rpc_status.from_call(cast("grpc.Call", error))
    info = error_details_pb2.RetryInfo()
    for detail in status.details if status else ():
        if detail.Unpack(info):
            return float(info.retry_delay.ToNanoseconds() / 1e9)
    return None
