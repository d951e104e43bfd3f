"""Translates failures of calls to other services into errors for the gateway's clients."""

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
from services.common.status import RpcFailure, failure_of
from services.gateway.domain.errors import (
    AgentDeletedError,
    QueueFullError,
    RunInProgressError,
    SequenceAheadError,
    ServiceUnavailableError,
    SubSessionError,
)

_BY_REASON: dict[str, type[ServiceError]] = {
    kind.reason: kind
    for kind in (
        AgentDeletedError,
        QueueFullError,
        RequestIdReusedError,
        RunInProgressError,
        SequenceAheadError,
        SubSessionError,
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


def translated(error: aio.AioRpcError, *, service: str) -> Exception:
    """The error to raise for a failed call; the call's own if it can only be a fault of ours.

    Args:
        error: the failure.
        service: the name of the service that was called.
    """
    failure = failure_of(error)
    if failure.broken:
        return ServiceUnavailableError(service)
    return error_of(failure) or error


def error_of(failure: RpcFailure) -> ServiceError | None:
    """The error for a status that a service gave; None if it can only be a fault of ours."""
    kind = _BY_REASON.get(failure.reason) or _BY_CODE.get(failure.code)
    if kind is None:
        return None
    return kind(
        failure.message,
        metadata=failure.metadata,
        violations=failure.violations,
        retry_after=failure.retry_after,
    )
