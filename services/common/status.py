"""Converts a `ServiceError` to `google.rpc.Status` and back, in one place."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from services.common.errors import Code, FieldViolation, ServiceError
from services.common.text import shortened

DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata that carries the serialized Status, as gRPC's own libraries name it."""

# A peer drops a call whose trailing metadata exceeds 8 KiB, grpc's default. On the wire the details
# grow by a third (base64) and the message up to threefold (percent-encoding).
_MOST_MESSAGE_BYTES = 512
_MOST_DETAILS_BYTES = 3 * 1024
_MOST_TEXT_BYTES = 200
_MOST_METADATA_BYTES = 1024

_RETRIABLE = {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED}
_DEFAULT_RETRY_SECONDS = 1.0
_MOST_RETRY_SECONDS = 24 * 3600.0
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
# Without a reason these come from grpc itself, not from a service.
_BROKEN = {grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE}


def grpc_code(code: Code) -> grpc.StatusCode:
    """The same code as grpc spells it."""
    return _GRPC_CODES[code.value]


def to_status(error: ServiceError, *, domain: str) -> status_pb2.Status:
    """The Status of an error: ErrorInfo, RetryInfo if retrying helps, BadRequest for fields.

    Texts are shortened and fields left out as needed to fit into a call's metadata.
    """
    status = status_pb2.Status(
        code=error.code.value, message=shortened(error.message, _MOST_MESSAGE_BYTES)
    )
    metadata = dict(_fitting(error.metadata))
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=domain, metadata=metadata)
    status.details.add().Pack(info)
    if (retry_after := _retry_after(error)) is not None:
        delay = Duration()
        delay.FromNanoseconds(int(retry_after * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.violations:
        room = _MOST_DETAILS_BYTES - status.ByteSize()
        status.details.add().Pack(_bad_request(error.violations, room=room))
    return status


def _fitting(metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The metadata, shortest values first; the longest are shortened to what room is left."""
    room = _MOST_METADATA_BYTES
    for key, value in sorted(metadata.items(), key=lambda item: len(item[1])):
        fitting = shortened(value, max(room, _MOST_TEXT_BYTES))
        room -= len(fitting.encode())
        yield key, fitting


def _bad_request(
    violations: Iterable[FieldViolation], *, room: int
) -> error_details_pb2.BadRequest:
    """As many of the fields, in their order, as fit into `room` bytes."""
    bad_request = error_details_pb2.BadRequest()
    for violation in violations:
        bad_request.field_violations.add(
            field=shortened(violation.field, _MOST_TEXT_BYTES),
            description=shortened(violation.description, _MOST_TEXT_BYTES),
        )
        if bad_request.ByteSize() > room:
            del bad_request.field_violations[-1]
            break
    return bad_request


def _retry_after(error: ServiceError) -> float | None:
    """Seconds, within bounds whatever a provider may have said."""
    if error.retry_after is not None:
        return min(max(0.0, error.retry_after), _MOST_RETRY_SECONDS)
    return _DEFAULT_RETRY_SECONDS if error.code in _RETRIABLE else None


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """The parts of a failed call's status, for clients to translate into errors of their own.

    Attributes:
        code: grpc's status code.
        reason: ErrorInfo's reason; empty if the status carries none.
        message: the status message.
        metadata: ErrorInfo's metadata.
        violations: BadRequest's fields.
        retry_after: RetryInfo's delay in seconds.
    """

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()
    retry_after: float | None = None

    @property
    def unreachable(self) -> bool:
        """Whether the other side was down or too slow, rather than refused the call."""
        return self.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}

    @property
    def broken(self) -> bool:
        """Whether the connection broke or the process ended before a service answered."""
        return not self.reason and self.code in _BROKEN


class FailedCall(Protocol):
    """The error of a failed call, of grpc and grpc.aio alike."""

    def code(self) -> grpc.StatusCode:
        """The status code."""

    def details(self) -> str | None:
        """The status message."""

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """What came with the status."""


def failure_of(error: FailedCall) -> RpcFailure:
    """The status in the error of a failed call, with its details unpacked."""
    return _failure(error.code(), error.details() or "", _details(error))


def failure_of_status(status: status_pb2.Status) -> RpcFailure:
    """A status that came as data, with its details unpacked."""
    code = _GRPC_CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return _failure(code, status.message, status.details)


def _failure(code: grpc.StatusCode, message: str, details: Iterable[Any]) -> RpcFailure:
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in details:
        for known in (info, bad_request, retry):
            with suppress(DecodeError):
                detail.Unpack(known)
    has_delay = retry.HasField("retry_delay")
    return RpcFailure(
        code=code,
        reason=info.reason,
        message=message,
        metadata=dict(info.metadata),
        violations=tuple(
            FieldViolation(v.field, v.description) for v in bad_request.field_violations
        ),
        retry_after=retry.retry_delay.ToNanoseconds() / 1e9 if has_delay else None,
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
