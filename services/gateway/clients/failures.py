"""What a failed call inward means for the client of the gateway."""

import grpc
from grpc import aio

from services.common.errors import (
    AbortedError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RequestIdReusedError,
    ResourceExhaustedError,
    ServiceError,
    UnavailableError,
)
from services.common.status import failure_of
from services.gateway.domain.errors import (
    AgentDeletedError,
    DrainingError,
    QueueFullError,
    RunInProgressError,
    SequenceAheadError,
    ServiceUnavailableError,
)

_BY_REASON: dict[str, type[ServiceError]] = {
    kind.reason: kind
    for kind in (
        AgentDeletedError,
        DrainingError,
        QueueFullError,
        RequestIdReusedError,
        RunInProgressError,
        SequenceAheadError,
    )
}
_BY_CODE: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
}
# Without a reason these come from a line that broke or a process that ended, not from a service.
_BROKEN = {
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
}


def translated(error: aio.AioRpcError, *, service: str) -> Exception:
    """The error to raise; the call's own where it can only be a fault of ours.

    Args:
        error: the failure.
        service: who was asked.
    """
    failure = failure_of(error)
    if not failure.reason and failure.code in _BROKEN:
        return ServiceUnavailableError(service)
    kind = _BY_REASON.get(failure.reason) or _BY_CODE.get(failure.code)
    if kind is None:
        return error
    return kind(
        failure.message,
        metadata=failure.metadata,
        violations=failure.violations,
        retry_after=failure.retry_after,
    )
