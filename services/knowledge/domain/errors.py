"""What callers of this service can be told, beyond the common errors.

Errors of reading an upload stand beside the readers, in `domain.ingest.errors`.
"""

from collections.abc import Sequence

from services.common.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from services.knowledge.domain.models import DocumentId, EmbeddingSpace, KnowledgeBaseId


def base_not_found(base_id: KnowledgeBaseId) -> NotFoundError:
    """The base is unknown to the caller."""
    return _not_found("knowledge_base", base_id)


def document_not_found(document_id: DocumentId) -> NotFoundError:
    """The document is unknown to the caller."""
    return _not_found("document", document_id)


def _not_found(resource: str, resource_id: str) -> NotFoundError:
    noun = resource.replace("_", " ")
    return NotFoundError(
        f"There is no {noun} {resource_id}.", metadata={"resource": resource, "id": resource_id}
    )


class ContentTooLargeError(InvalidArgumentError):
    """The upload is over the limit."""

    reason = "CONTENT_TOO_LARGE"

    def __init__(self, *, field: str, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        description = f"the content is over {max_bytes} bytes"
        super().__init__(
            f"{field}: {description}",
            metadata={"max_bytes": str(max_bytes)},
            violations=[FieldViolation(field, description)],
        )


class ContentMismatchError(InvalidArgumentError):
    """The content is not what its header announced."""

    reason = "CONTENT_MISMATCH"

    def __init__(self, *, field: str, expected: str, received: str) -> None:
        self.expected = expected
        self.received = received
        description = f"the content has the SHA-256 {received}, not {expected}"
        super().__init__(
            f"{field}: {description}",
            metadata={"expected": expected, "received": received},
            violations=[FieldViolation(field, description)],
        )


class UnknownEmbeddingModelError(FailedPreconditionError):
    """The embedding service has no such model."""

    reason = "UNKNOWN_EMBEDDING_MODEL"

    def __init__(self, *, model: str, known: Sequence[str]) -> None:
        self.model = model
        self.known = tuple(known)
        listing = ", ".join(known) or "none"
        super().__init__(
            f"There is no embedding model {model!r}; known: {listing}.",
            metadata={"model": model, "known": listing},
        )


class EmbeddingModelMismatchError(FailedPreconditionError):
    """Vectors that would have to be compared are not of one space."""

    reason = "EMBEDDING_MODEL_MISMATCH"

    @classmethod
    def between_bases(
        cls, expected: EmbeddingSpace, received: EmbeddingSpace
    ) -> "EmbeddingModelMismatchError":
        """Bases of different models cannot be searched together."""
        return cls(
            "The knowledge bases have different embedding models; search each alone.",
            metadata={
                "model": received.model,
                "expected": _told(expected),
                "received": _told(received),
            },
        )

    @classmethod
    def of_dimensions(cls, space: EmbeddingSpace, received: int) -> "EmbeddingModelMismatchError":
        """The model's vectors no longer have the length that the base was made with."""
        return cls(
            f"The embedding model {space.model!r} now makes vectors of {received} dimensions; the "
            f"knowledge base was made with {space.dimensions}. Make a new one.",
            metadata={
                "model": space.model,
                "expected": str(space.dimensions),
                "received": str(received),
            },
        )


class EmbeddingUnavailableError(UnavailableError):
    """The embedding service or its backend is down or overloaded."""

    reason = "EMBEDDING_UNAVAILABLE"


def _told(space: EmbeddingSpace) -> str:
    return f"{space.model} ({space.dimensions})"
