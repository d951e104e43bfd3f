"""Converts between the contract's messages and the domain's values."""

from collections.abc import Sequence
from typing import assert_never

from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2

from services.common.errors import InvalidArgumentError
from services.common.text import clean
from services.embedding.domain.embed import Embedded, EmbedInput, ServedModel
from services.embedding.domain.models import BackendKind, Purpose, Vector


def to_embed_input(request: embedding_service_pb2.EmbedRequest) -> EmbedInput:
    """The texts to embed, with what cannot be stored replaced.

    Raises:
        InvalidArgumentError: the purpose is unknown.
    """
    return EmbedInput(
        model=clean(request.model),
        texts=[clean(text) for text in request.texts],
        purpose=_purpose(request.purpose),
    )


def from_embedded(embedded: Embedded) -> embedding_service_pb2.EmbedResponse:
    """The vectors as the contract has them."""
    return embedding_service_pb2.EmbedResponse(
        model=embedded.spec.name,
        dimensions=embedded.spec.dimensions,
        embeddings=[_embedding(vector) for vector in embedded.vectors],
        digest=embedded.digest,
    )


def from_models(
    models: Sequence[ServedModel],
) -> embedding_service_pb2.ListModelsResponse:
    """The models with their present states."""
    return embedding_service_pb2.ListModelsResponse(models=[_model(each) for each in models])


def _purpose(purpose: int) -> Purpose:
    match purpose:
        case embedding_pb2.PURPOSE_QUERY:
            return Purpose.QUERY
        case embedding_pb2.PURPOSE_DOCUMENT:
            return Purpose.DOCUMENT
        case _:
            raise InvalidArgumentError.of_field("purpose", "must be QUERY or DOCUMENT")


def _embedding(vector: Vector) -> embedding_pb2.Embedding:
    return embedding_pb2.Embedding(
        values=vector.values.tolist(),
        token_count=vector.token_count,
        truncated=vector.truncated,
    )


def _model(model: ServedModel) -> embedding_pb2.EmbeddingModel:
    return embedding_pb2.EmbeddingModel(
        name=model.spec.name,
        dimensions=model.spec.dimensions,
        max_input_tokens=model.spec.max_input_tokens,
        max_batch_size=model.spec.max_batch_size,
        backend=_backend(model.spec.kind),
        ready=model.state.ready,
        default=model.default,
        digest=model.state.digest,
    )


def _backend(kind: BackendKind) -> embedding_pb2.EmbeddingModel.Backend.ValueType:
    match kind:
        case BackendKind.OLLAMA:
            return embedding_pb2.EmbeddingModel.BACKEND_OLLAMA
        case BackendKind.BUNDLED:
            return embedding_pb2.EmbeddingModel.BACKEND_BUNDLED
        case BackendKind.OPENAI:
            return embedding_pb2.EmbeddingModel.BACKEND_OPENAI
        case _:
            assert_never(kind)
