"""The root of all services' errors, free of any transport.

    ServiceError                 code, reason, metadata, violations, retry_after
    ├── InvalidArgumentError     the request is malformed; names the fields
    ├── NotFoundError            absent, or another owner's: the two read alike
    ├── AlreadyExistsError       a name or request id is taken by other content
    ├── FailedPreconditionError  the state of the resource forbids it
    ├── OutOfRangeError          past the end of what exists
    ├── UnauthenticatedError     no credential, or an invalid one
    ├── PermissionDeniedError    the credential is valid but does not permit this
    ├── ResourceExhaustedError   a limit or quota is used up
    ├── AbortedError             another change won a race; a retry may succeed
    ├── DeadlineExceededError    it took longer than a call may take
    └── UnavailableError         something this service depends on is down

Services subclass these and set `reason` to a value of their `ErrorReason` enum in `protos/`.
`services.common.status` converts them to `google.rpc.Status`, in one place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class StartupError(Exception):
    """What keeps a process from starting; the message is one line for the operator, never sent."""


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
    """An error that a caller may be told.

    Attributes:
        code: canonical status code.
        reason: the `ErrorReason` value, in UPPER_SNAKE_CASE.
        message: one sentence for a person; never driver text, a path or a secret.
        metadata: facts for a program, as documented at the reason in the contract.
        violations: the refused fields, with `INVALID_ARGUMENT`.
        retry_after: seconds after which a retry makes sense; None if unknown.
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
    """The request is malformed."""

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
    """The state of the resource forbids the request."""

    code = Code.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"


class OutOfRangeError(ServiceError):
    """A position past the end of what exists."""

    code = Code.OUT_OF_RANGE
    reason = "OUT_OF_RANGE"


class UnauthenticatedError(ServiceError):
    """No credential, or an invalid one."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(ServiceError):
    """The credential is valid but does not permit this."""

    code = Code.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class ResourceExhaustedError(ServiceError):
    """A limit or quota is used up."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "RESOURCE_EXHAUSTED"


class AbortedError(ServiceError):
    """Another change won a race; a retry may succeed."""

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
