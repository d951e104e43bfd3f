"""The embedding service's errors, each with its reason in the contract.

`TextsRefusedError` never leaves the service: a backend raises it, and `domain.isolation` finds the
texts to blame.
"""

from collections.abc import Sequence

from services.common.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.embedding.domain.models import Fault, ModelName, ModelSpec


class UnknownModelError(NotFoundError):
    """There is no model of this name."""

    reason = "UNKNOWN_MODEL"

    def __init__(self, model: str, *, known: Sequence[ModelName]) -> None:
        names = ", ".join(known)
        super().__init__(
            f"There is no embedding model '{model}' here; there are: {names}.",
            metadata={"model": model, "known": ",".join(known)},
        )


class BatchTooLargeError(InvalidArgumentError):
    """A request has more texts than its model takes at once."""

    reason = "BATCH_TOO_LARGE"

    def __init__(self, count: int, spec: ModelSpec) -> None:
        super().__init__(
            f"{spec.name} takes {spec.max_batch_size} texts at once, not {count}.",
            metadata={"count": str(count), "max_batch_size": str(spec.max_batch_size)},
        )


class BackendUnavailableError(UnavailableError):
    """The backend is down, too slow, or lacks the model; asking later may succeed."""

    reason = "BACKEND_UNAVAILABLE"

    def __init__(self, spec: ModelSpec, why: str, *, retry_after: float | None = None) -> None:
        super().__init__(
            f"{spec.name} is unavailable: {why}.",
            metadata={"backend": spec.kind.value, "model": spec.name},
            retry_after=retry_after,
        )


class InvalidEmbeddingError(FailedPreconditionError):
    """The backend gives no usable vector for some texts; trying again would not help."""

    reason = "INVALID_EMBEDDING"

    def __init__(self, spec: ModelSpec, faults: dict[int, Fault]) -> None:
        first = next(iter(faults.values()))
        super().__init__(
            f"{spec.name} gave no usable vector for {len(faults)} of the texts: "
            f"expected {first.expected}, received {first.received}.",
            metadata={
                "model": spec.name,
                "indexes": ",".join(str(index) for index in faults),
                "expected": first.expected,
                "received": first.received,
            },
        )


class BusyError(ResourceExhaustedError):
    """Too many texts are waiting for the backend already."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(f"Too many texts are waiting for {spec.name} already; try again later.")


class TextsRefusedError(Exception):
    """The backend refused a whole call; some of its texts, or the backend itself, may be why.

    Attributes:
        received: the answer in place of vectors, such as `HTTP 500`.
    """

    def __init__(self, received: str) -> None:
        super().__init__(received)
        self.received = received
