"""`ServiceError` to `google.rpc.Status` and back, in one place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from services.common.errors import Code, FieldViolation, ServiceError

DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata that carries the serialized Status, as gRPC's own libraries name it."""

_RETRIABLE = {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED}
_DEFAULT_RETRY_SECONDS = 1.0
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


def grpc_code(code: Code) -> grpc.StatusCode:
    """The same code as grpc spells it."""
    return _GRPC_CODES[code.value]


def to_status(error: ServiceError, *, domain: str) -> status_pb2.Status:
    """The Status of an error: ErrorInfo, BadRequest for fields, RetryInfo where retrying helps."""
    status = status_pb2.Status(code=error.code.value, message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=domain, metadata=error.metadata)
    status.details.add().Pack(info)
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in error.violations
        ]
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    retry_after = error.retry_after
    if retry_after is None and error.code in _RETRIABLE:
        retry_after = _DEFAULT_RETRY_SECONDS
    if retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(retry_after * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """What a failed call said, for clients to translate into errors of their own.

    Attributes:
        code: grpc's status code.
        reason: ErrorInfo's reason; empty where the answer carries none.
        message: the status message.
        metadata: ErrorInfo's metadata.
        violations: BadRequest's fields.
    """

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()

    @property
    def unreachable(self) -> bool:
        """Whether the other side could not be asked, rather than refused."""
        return self.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class FailedCall(Protocol):
    """The error of a failed call, of grpc and grpc.aio alike."""

    def code(self) -> grpc.StatusCode:
        """The status code."""

    def details(self) -> str | None:
        """The status message."""

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """What came with the status."""


def failure_of(error: FailedCall) -> RpcFailure:
    """What the error of a failed call says, details unpacked."""
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    for detail in _details(error):
        if not detail.Unpack(info):
            detail.Unpack(bad_request)
    return RpcFailure(
        code=error.code(),
        reason=info.reason,
        message=error.details() or "",
        metadata=dict(info.metadata),
        violations=tuple(
            FieldViolation(v.field, v.description) for v in bad_request.field_violations
        ),
    )


def _details(error: FailedCall) -> list[Any]:
    trailing = dict(error.trailing_metadata() or ())
    raw = trailing.get(DETAILS_KEY)
    if not isinstance(raw, bytes):
        return []
    try:
        return list(status_pb2.Status.FromString(raw).details)
    except DecodeError:
        return []
