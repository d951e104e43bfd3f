"""An embedding service that computes little and can be told to fail, over real gRPC."""

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2, embedding_service_pb2_grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from cli.local.ports import free_ports
from services.common.clock import now
from services.common.errors import FailedPreconditionError, NotFoundError, UnavailableError
from services.common.identity import Identity, IdentityVerifier, load_trusted_keys
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import (
    AuthenticationInterceptor,
    current_identity,
)

MODEL = "bigrams"
OTHER_MODEL = "other-bigrams"
DIMENSIONS = 64
MESSAGE_BYTES = 20 * 1024 * 1024


class InvalidEmbeddingError(FailedPreconditionError):
    """As the real service tells it."""

    reason = "INVALID_EMBEDDING"


class UnknownModelError(NotFoundError):
    """As the real service tells it."""

    reason = "UNKNOWN_MODEL"


class BackendUnavailableError(UnavailableError):
    """As the real service tells it."""

    reason = "BACKEND_UNAVAILABLE"


def bigram_vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A unit vector of the bigrams of the text's beginning: texts with words in common are near."""
    folded = f" {text[:200].lower()} "
    bigrams = Counter(folded[i : i + 2] for i in range(len(folded) - 1))
    values = [0.0] * dimensions
    for bigram, count in bigrams.items():
        place = int.from_bytes(hashlib.blake2b(bigram.encode(), digest_size=4).digest())
        values[place % dimensions] += math.sqrt(count)
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


class FakeEmbedding(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Embeds with character bigrams.

    Attributes:
        dimensions: of both models.
        digest: of their weights.
        max_input_tokens: of both models, as they say.
        max_batch_size: of both models.
        max_chars: how much of a text they see; 0 for all.
        poison: texts that hold it cannot be embedded; empty for none.
        unavailable: whether the backend is away.
        open: cleared, calls for documents wait.
        batches: the texts of every call for documents that was answered.
        queries: every question that was embedded.
        callers: for whom was embedded.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Be as new."""
        self.dimensions = DIMENSIONS
        self.digest = "weights-1"
        self.max_input_tokens = 512
        self.max_batch_size = 32
        self.max_chars = 0
        self.poison = ""
        self.unavailable = False
        self.open = asyncio.Event()
        self.open.set()
        self.entered = asyncio.Event()
        self.batches: list[list[str]] = []
        self.queries: list[str] = []
        self.callers: set[Identity] = set()

    @property
    def embedded(self) -> list[str]:
        """Every text that was embedded for a document."""
        return [text for batch in self.batches for text in batch]

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802 - by contract
        """Both models."""
        if self.unavailable:
            raise BackendUnavailableError("away")
        return embedding_service_pb2.ListModelsResponse(
            models=[self._model(MODEL, default=True), self._model(OTHER_MODEL)]
        )

    async def Embed(self, request: Any, context: Any) -> Any:  # noqa: N802 - by contract
        """The vectors."""
        self.callers.add(current_identity())
        if request.model not in {MODEL, OTHER_MODEL}:
            raise UnknownModelError("unknown", metadata={"model": request.model, "known": MODEL})
        if request.purpose == embedding_pb2.PURPOSE_DOCUMENT:
            self.entered.set()
            await self.open.wait()
        if self.unavailable:
            raise BackendUnavailableError("away")
        self._note(request)
        self._refuse_poison(request.texts)
        return embedding_service_pb2.EmbedResponse(
            model=request.model,
            dimensions=self.dimensions,
            digest=self.digest,
            embeddings=[self._embedding(text) for text in request.texts],
        )

    def _note(self, request: Any) -> None:
        if request.purpose == embedding_pb2.PURPOSE_QUERY:
            self.queries += request.texts
        else:
            self.batches.append(list(request.texts))

    def _refuse_poison(self, texts: Sequence[str]) -> None:
        indexes = [str(i) for i, text in enumerate(texts) if self.poison and self.poison in text]
        if indexes:
            raise InvalidEmbeddingError("NaN", metadata={"indexes": ",".join(indexes)})

    def _embedding(self, text: str) -> embedding_pb2.Embedding:
        seen = text[: self.max_chars] if self.max_chars else text
        return embedding_pb2.Embedding(
            values=bigram_vector(seen, self.dimensions),
            token_count=len(text.split()),
            truncated=len(seen) < len(text),
        )

    def _model(self, name: str, *, default: bool = False) -> embedding_pb2.EmbeddingModel:
        return embedding_pb2.EmbeddingModel(
            name=name,
            dimensions=self.dimensions,
            max_input_tokens=self.max_input_tokens,
            max_batch_size=self.max_batch_size,
            ready=True,
            default=default,
            digest=self.digest,
        )


class EmbeddingServer:
    """The server of a fake, which can be killed and started again at the same port."""

    def __init__(self, fake: FakeEmbedding, identity_dir: Path) -> None:
        self.port = next(free_ports())
        self._fake = fake
        self._identity_dir = identity_dir
        self._server: aio.Server | None = None

    async def start(self) -> None:
        """Serve, for the knowledge service alone."""
        trusted = load_trusted_keys(self._identity_dir / "trusted", frozenset({"knowledge"}))
        verifier = IdentityVerifier("embedding", trusted, clock=now)
        self._server = aio.server(
            interceptors=interceptor_chain(
                "embedding.chatmind", AuthenticationInterceptor(verifier)
            ),
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
            ],
        )
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server(self._fake, self._server)
        health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        await health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def kill(self) -> None:
        """End at once; open calls break off."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
