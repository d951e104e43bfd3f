"""The gateway's errors, each with its reason in the contract."""

from services.common.errors import (
    AbortedError,
    FailedPreconditionError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    StartupError,
    UnauthenticatedError,
    UnavailableError,
)


class NoKeyError(UnauthenticatedError):
    """No API key came with the call."""

    def __init__(self) -> None:
        super().__init__(
            'No API key came with the call; send one as metadata "authorization: Bearer <key>".'
        )


class InvalidKeyError(UnauthenticatedError):
    """The API key is unknown, expired or revoked."""


class TooManyFailuresError(ResourceExhaustedError):
    """Too many calls with a bad key came from one address."""

    reason = "TOO_MANY_FAILURES"

    def __init__(self, *, retry_after: float) -> None:
        super().__init__(
            "Too many calls with a bad API key came from this address.", retry_after=retry_after
        )


class ScopeMissingError(PermissionDeniedError):
    """The key's roles or scopes do not permit this."""

    def __init__(self, message: str, *, scope: str) -> None:
        super().__init__(message, metadata={"scope": scope})


class ServiceUnavailableError(UnavailableError):
    """A service behind the gateway is down."""

    reason = "SERVICE_UNAVAILABLE"

    def __init__(self, service: str) -> None:
        super().__init__(
            f"The {service} service cannot be reached at the moment.", metadata={"service": service}
        )


class DrainingError(UnavailableError):
    """This replica is shutting down; another one can continue."""

    reason = "DRAINING"


class RunInProgressError(FailedPreconditionError):
    """The session is busy, and the caller asked for REJECT."""

    reason = "RUN_IN_PROGRESS"


class AgentDeletedError(FailedPreconditionError):
    """The session's agent was deleted."""

    reason = "AGENT_DELETED"


class SubSessionError(FailedPreconditionError):
    """The session belongs to a run of another agent, which alone goes on with it."""

    reason = "SUB_SESSION"


class QueueFullError(ResourceExhaustedError):
    """Too many messages of the session, or of the tenant, wait."""

    reason = "QUEUE_FULL"


class SequenceAheadError(OutOfRangeError):
    """The stream was to start after the newest message."""

    reason = "SEQUENCE_AHEAD"


class SlowConsumerError(AbortedError):
    """The client reads too slowly."""

    reason = "SLOW_CONSUMER"

    @classmethod
    def after(cls, sequence: int | None) -> "SlowConsumerError":
        """The error that tells where to resume, if that is known."""
        where = {} if sequence is None else {"resume_after_sequence": str(sequence)}
        return cls("The stream was read too slowly; resume it where it ended.", metadata=where)


class KeyFileError(StartupError):
    """The file for the administrator's key cannot be used; the message is for the operator."""


def unknown_key(identifier: str) -> NotFoundError:
    """The error for a key that is absent or another tenant's; both read the same."""
    return NotFoundError(
        f"No API key {identifier}.", metadata={"resource": "api_key", "id": identifier}
    )
