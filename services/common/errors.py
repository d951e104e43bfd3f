"""The error root of every service, free of any transport.

    ServiceError                 code, reason, metadata, violations, retry_after
    ├── InvalidArgumentError     what was asked is malformed; names the fields
    ├── NotFoundError            absent, or another owner's: the two read alike
    ├── AlreadyExistsError       a name or request id is taken by other content
    ├── FailedPreconditionError  the state of the resource forbids it
    ├── OutOfRangeError          past the end of what exists
    ├── UnauthenticatedError     no credential, or one that does not hold
    ├── PermissionDeniedError    the credential holds but does not reach this far
    ├── ResourceExhaustedError   a limit or quota is used up
    ├── AbortedError             lost a race; asking again may succeed
    ├── DeadlineExceededError    it took longer than a call may take
    └── UnavailableError         something this service depends on is down

Services subclass these and set `reason` to a value of their `ErrorReason` enum in `protos/`.
`services.common.status` turns them into `google.rpc.Status`, in one place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Code(Enum):
    """The canonical status codes an error may carry; values are the numbers on the wire."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that was refused.

    Attributes:
        field: path from the request's root, such as `agent.options.temperature`.
        description: what the field must be.
    """

    field: str
    description: str


class ServiceError(Exception):
    """Something a caller can be told about.

    Attributes:
        code: canonical status code.
        reason: the `ErrorReason` value, in UPPER_SNAKE_CASE.
        message: one sentence for a person; never driver text, a path or a secret.
        metadata: facts for a program, as documented at the reason in the contract.
        violations: the refused fields, with `INVALID_ARGUMENT`.
        retry_after: seconds after which asking again makes sense, where it does.
    """

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after


class InvalidArgumentError(ServiceError):
    """What was asked is malformed."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_FIELD"

    @classmethod
    def of_field(cls, field: str, description: str) -> "InvalidArgumentError":
        """One refused field, named in the message too."""
        return cls(f"{field}: {description}", violations=[FieldViolation(field, description)])


class NotFoundError(ServiceError):
    """The id is unknown to this caller."""

    code = Code.NOT_FOUND
    reason = "NOT_FOUND"


class AlreadyExistsError(ServiceError):
    """A name or request id is taken by other content."""

    code = Code.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"


class RequestIdReusedError(AlreadyExistsError):
    """A request id came again with other content."""

    reason = "REQUEST_ID_REUSED"


class FailedPreconditionError(ServiceError):
    """The state of the resource forbids what was asked."""

    code = Code.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"


class OutOfRangeError(ServiceError):
    """A position past the end of what exists."""

    code = Code.OUT_OF_RANGE
    reason = "OUT_OF_RANGE"


class UnauthenticatedError(ServiceError):
    """No credential, or one that does not hold."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(ServiceError):
    """The credential holds but does not reach this far."""

    code = Code.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class ResourceExhaustedError(ServiceError):
    """A limit or quota is used up."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "RESOURCE_EXHAUSTED"


class AbortedError(ServiceError):
    """Lost a race; asking again may succeed."""

    code = Code.ABORTED
    reason = "ABORTED"


class DeadlineExceededError(ServiceError):
    """It took longer than a call may take."""

    code = Code.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class UnavailableError(ServiceError):
    """Something this service depends on is down or busy."""

    code = Code.UNAVAILABLE
    reason = "UNAVAILABLE"
