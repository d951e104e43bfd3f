"""The port `Embedder` over the embedding service's stub.

Its statuses are translated, never passed on, and no answer is believed unread: there must be as
many vectors as texts, each as long as announced, every component a finite number.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2
from chatmind.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from grpc import StatusCode, aio

from services.common.channel import OutgoingCalls
from services.common.identity import Identity
from services.common.status import RpcFailure, failure_of
from services.knowledge.domain.embedding import (
    Embedded,
    EmbeddedBatch,
    EmbeddingModel,
    NotEmbeddableError,
    Purpose,
    vector,
)
from services.knowledge.domain.errors import (
    EmbeddingUnavailableError,
    UnknownEmbeddingModelError,
)
from services.knowledge.domain.models import EmbeddingSpace

IDEMPOTENT_METHODS = (
    ("chatmind.embedding.v1.EmbeddingService", "Embed"),
    ("chatmind.embedding.v1.EmbeddingService", "ListModels"),
)
"""What may be asked again when the service is away for a moment."""

_PURPOSES = {
    Purpose.QUERY: embedding_pb2.PURPOSE_QUERY,
    Purpose.DOCUMENT: embedding_pb2.PURPOSE_DOCUMENT,
}


class EmbeddingClient:
    """Asks the embedding service on behalf of a user."""

    def __init__(
        self, channel: aio.Channel, calls: OutgoingCalls, *, seconds: float, query_seconds: float
    ) -> None:
        """Ask over `channel`, waiting `seconds` for a batch and `query_seconds` for all else."""
        self._stub = EmbeddingServiceStub(channel)
        self._calls = calls
        self._seconds = {Purpose.DOCUMENT: seconds, Purpose.QUERY: query_seconds}

    async def models(self, *, identity: Identity) -> tuple[EmbeddingModel, ...]:
        """See the port."""
        with _translated():
            answer = await self._stub.ListModels(
                embedding_service_pb2.ListModelsRequest(),
                metadata=self._calls.metadata(identity),
                timeout=self._seconds[Purpose.QUERY],
            )
        return tuple(_to_model(model) for model in answer.models)

    async def embed(
        self, texts: Sequence[str], *, model: str, purpose: Purpose, identity: Identity
    ) -> EmbeddedBatch:
        """See the port."""
        request = embedding_service_pb2.EmbedRequest(
            model=model, texts=texts, purpose=_PURPOSES[purpose]
        )
        with _translated():
            answer = await self._stub.Embed(
                request,
                metadata=self._calls.metadata(identity),
                timeout=self._seconds[purpose],
            )
        return _to_batch(answer, len(texts))


def _to_model(model: embedding_pb2.EmbeddingModel) -> EmbeddingModel:
    return EmbeddingModel(
        space=EmbeddingSpace(model.name, model.dimensions),
        max_input_tokens=model.max_input_tokens,
        max_batch_size=model.max_batch_size,
        is_default=model.default,
        digest=model.digest,
    )


def _to_batch(answer: embedding_service_pb2.EmbedResponse, count: int) -> EmbeddedBatch:
    embedded = tuple(
        Embedded(vector(each.values), each.token_count, each.truncated)
        for each in answer.embeddings
    )
    if len(embedded) != count:
        raise _unusable(answer, f"{len(embedded)} vectors for {count} texts")
    for each in embedded:
        if len(each.vector) != answer.dimensions:
            lengths = f"{len(each.vector)} components where {answer.dimensions} are announced"
            raise _unusable(answer, lengths)
        if not math.isfinite(sum(each.vector)):
            raise _unusable(answer, "a component that is no finite number")
    space = EmbeddingSpace(answer.model, answer.dimensions)
    return EmbeddedBatch(space, answer.digest, embedded)


def _unusable(
    answer: embedding_service_pb2.EmbedResponse, received: str
) -> EmbeddingUnavailableError:
    return EmbeddingUnavailableError(
        f"The embedding service answered for model {answer.model!r} with {received}."
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aio.AioRpcError as error:
        raise _to_error(failure_of(error)) from error


def _to_error(failure: RpcFailure) -> Exception:
    match failure.reason:
        case "INVALID_EMBEDDING":
            return NotEmbeddableError(_indexes(failure.metadata.get("indexes", "")))
        case "UNKNOWN_MODEL":
            known = failure.metadata.get("known", "")
            return UnknownEmbeddingModelError(
                model=failure.metadata.get("model", ""),
                known=[name.strip() for name in known.split(",") if name.strip()],
            )
    if failure.code is StatusCode.INVALID_ARGUMENT:
        return NotEmbeddableError(())
    if not failure.unreachable:
        log = structlog.get_logger("embedding")
        log.error("embedding refused", code=failure.code.name, message=failure.message)
    return EmbeddingUnavailableError("The embedding service is not available now.")


def _indexes(listed: str) -> tuple[int, ...]:
    return tuple(int(each) for each in listed.split(",") if each.strip().isdecimal())
