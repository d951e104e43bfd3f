"""What can go wrong in the agent service, each with a reason of the contract."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal

from services.common.errors import (
    AbortedError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)

_QUEUE_RETRY_AFTER: Final = 2.0
_MCP_RETRY_AFTER: Final = 5.0


def unknown(resource: str, identifier: str) -> NotFoundError:
    """The error for an id that is absent or another's: one text for both."""
    return NotFoundError(
        f"No {resource.replace('_', ' ')} {identifier}.",
        metadata={"resource": resource, "id": identifier},
    )


class UnknownModelError(InvalidArgumentError):
    """No model of that name is registered."""

    reason = "UNKNOWN_MODEL"

    @classmethod
    def of(cls, field: str, model: str, *, known: Iterable[str]) -> "UnknownModelError":
        """The error for `model` in a field of a request."""
        names = ", ".join(sorted(known))
        return cls(
            f"{field}: no model is named {model!r}; known: {names}",
            metadata={"model": model, "known": names},
            violations=[FieldViolation(field, f"must be one of: {names}")],
        )


class UnknownToolError(InvalidArgumentError):
    """No tool of that name is registered."""

    reason = "UNKNOWN_TOOL"

    @classmethod
    def of(cls, field: str, tool: str, *, known: Iterable[str]) -> "UnknownToolError":
        """The error for `tool` in a field of a request."""
        names = ", ".join(sorted(known))
        return cls(
            f"{field}: no tool is named {tool!r}; known: {names}",
            metadata={"tool": tool, "known": names},
            violations=[FieldViolation(field, f"must be one of: {names}")],
        )


class UnknownHookError(InvalidArgumentError):
    """No hook of that name is registered."""

    reason = "UNKNOWN_HOOK"

    @classmethod
    def of(cls, field: str, hook: str, *, known: Iterable[str]) -> "UnknownHookError":
        """The error for `hook` in a field of a request."""
        names = ", ".join(sorted(known))
        return cls(
            f"{field}: no hook is named {hook!r}; known: {names}",
            metadata={"hook": hook, "known": names},
            violations=[FieldViolation(field, f"must be one of: {names}")],
        )


class UnknownKnowledgeBaseError(InvalidArgumentError):
    """The caller sees no such base."""

    reason = "UNKNOWN_KNOWLEDGE_BASE"

    @classmethod
    def of(cls, field: str, base_id: str) -> "UnknownKnowledgeBaseError":
        """The error for a base in a field of a request."""
        return cls(
            f"{field}: no knowledge base {base_id}",
            metadata={"knowledge_base_id": base_id},
            violations=[FieldViolation(field, "must be a knowledge base that you can see")],
        )


class UnknownAgentError(InvalidArgumentError):
    """An agent's owner, or the caller, sees no such agent."""

    reason = "UNKNOWN_AGENT"

    @classmethod
    def of(cls, field: str, agent_id: str) -> "UnknownAgentError":
        """The error for an agent in a field of a request."""
        return cls(
            f"{field}: no agent {agent_id}",
            metadata={"agent_id": agent_id},
            violations=[FieldViolation(field, "must be an agent that you and the owner can see")],
        )


class AgentCycleError(InvalidArgumentError):
    """An agent would call itself, directly or by way of others."""

    reason = "AGENT_CYCLE"

    @classmethod
    def of(cls, field: str, agent_id: str) -> "AgentCycleError":
        """The error for an agent in a field of a request that leads back to where it stands."""
        return cls(
            f"{field}: agent {agent_id} leads back to this one",
            metadata={"agent_id": agent_id},
            violations=[FieldViolation(field, "must not lead back to this agent")],
        )


class SubSessionError(FailedPreconditionError):
    """The session belongs to a run of another agent."""

    reason = "SUB_SESSION"

    @classmethod
    def of(cls, session_id: str, parent_run_id: str) -> "SubSessionError":
        """The error that names the session and the run it belongs to."""
        return cls(
            "This session belongs to the run of another agent: only that run goes on with it, "
            "and it is deleted with that run's session.",
            metadata={"session_id": session_id, "parent_run_id": parent_run_id},
        )


class UnknownMcpServerError(InvalidArgumentError):
    """The operator has declared no MCP server of that name."""

    reason = "UNKNOWN_MCP_SERVER"

    @classmethod
    def of(cls, field: str, server: str, *, known: Iterable[str]) -> "UnknownMcpServerError":
        """The error for `server` in a field of a request."""
        names = ", ".join(sorted(known)) or "none"
        return cls(
            f"{field}: no MCP server is named {server!r}; known: {names}",
            metadata={"server": server, "known": names},
            violations=[FieldViolation(field, f"must be one of: {names}")],
        )


class McpUnavailableError(UnavailableError):
    """An MCP server does not answer, or not as it should."""

    reason = "MCP_UNAVAILABLE"

    @classmethod
    def of(cls, server: str, why: str) -> "McpUnavailableError":
        """The error that tells which one, and why."""
        return cls(
            f"The MCP server {server!r} is not available: {why}",
            metadata={"server": server},
            retry_after=_MCP_RETRY_AFTER,
        )


class McpServerNotBoundError(FailedPreconditionError):
    """The agent has not been given that MCP server."""

    reason = "MCP_SERVER_NOT_BOUND"

    @classmethod
    def of(cls, server: str) -> "McpServerNotBoundError":
        """The error that names the server."""
        return cls(
            f"The agent may not use the MCP server {server!r}; name it in agent.mcp_servers first.",
            metadata={"server": server},
        )


class McpToolChangedError(FailedPreconditionError):
    """No tool of an MCP server has the digest that was seen."""

    reason = "MCP_TOOL_CHANGED"

    @classmethod
    def of(cls, server: str, digest: str) -> "McpToolChangedError":
        """The error that names the server and the digest."""
        return cls(
            f"No tool of the MCP server {server!r} that could be offered has the digest {digest}; "
            "look at them again.",
            metadata={"server": server, "digest": digest},
        )


class RunInProgressError(FailedPreconditionError):
    """The session is busy and the caller asked for REJECT."""

    reason = "RUN_IN_PROGRESS"

    @classmethod
    def of(cls, run_id: str) -> "RunInProgressError":
        """The error that names the run."""
        return cls("Another run of the session has not ended.", metadata={"run_id": run_id})


class AgentDeletedError(FailedPreconditionError):
    """The session's agent is gone, or no longer seen by the user."""

    reason = "AGENT_DELETED"

    @classmethod
    def of(cls, agent_id: str) -> "AgentDeletedError":
        """The error that names the agent."""
        return cls("The session's agent was deleted.", metadata={"agent_id": agent_id})


class CompactionOffError(FailedPreconditionError):
    """The session's agent does not work with summaries."""

    reason = "COMPACTION_OFF"

    @classmethod
    def of(cls, agent_id: str) -> "CompactionOffError":
        """The error that names the agent."""
        return cls(
            "The agent's window has another strategy than COMPACTION.",
            metadata={"agent_id": agent_id},
        )

    @classmethod
    def with_hooks(cls, agent_id: str) -> "CompactionOffError":
        """The error for an agent whose model is asked with its hooks around it only."""
        return cls(
            "The agent has hooks, so that its sessions are summarised within runs alone.",
            metadata={"agent_id": agent_id},
        )


class RunNotFailedError(FailedPreconditionError):
    """Only what ended in ERROR can be retried."""

    reason = "RUN_NOT_FAILED"

    @classmethod
    def of(cls, run_id: str, state: str) -> "RunNotFailedError":
        """The error that names the run and tells how it stands instead."""
        return cls(
            f"The run is {state}; only one that ended in ERROR can be retried.",
            metadata={"run_id": run_id, "state": state},
        )


class RunNotEndedError(FailedPreconditionError):
    """Only what has ended can be driven anew."""

    reason = "RUN_NOT_ENDED"

    @classmethod
    def of(cls, run_id: str, state: str) -> "RunNotEndedError":
        """The error that names the run and tells how it stands."""
        return cls(
            f"The run is {state}; only one that has ended can be replayed.",
            metadata={"run_id": run_id, "state": state},
        )


class ApprovalResolvedError(FailedPreconditionError):
    """It was answered before, or cancelled with its run."""

    reason = "APPROVAL_RESOLVED"

    @classmethod
    def of(cls, approval_id: str, state: str) -> "ApprovalResolvedError":
        """The error that tells how it stands."""
        return cls(
            f"The approval is {state}; only a pending one can be answered.",
            metadata={"approval_id": approval_id, "state": state},
        )


class ApprovalExpiredError(FailedPreconditionError):
    """Nobody answered it in time."""

    reason = "APPROVAL_EXPIRED"

    @classmethod
    def of(cls, approval_id: str, expire_time: datetime) -> "ApprovalExpiredError":
        """The error that tells when it lapsed."""
        lapsed = expire_time.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return cls(
            f"The approval lapsed at {lapsed}.",
            metadata={"approval_id": approval_id, "expire_time": lapsed},
        )


class ApprovalMismatchError(FailedPreconditionError):
    """What was decided on is not what is asked."""

    reason = "APPROVAL_MISMATCH"

    @classmethod
    def of(cls, approval_id: str) -> "ApprovalMismatchError":
        """The error that names the approval."""
        return cls(
            "The digest is not that of the arguments to be approved.",
            metadata={"approval_id": approval_id},
        )


class QueueFullError(ResourceExhaustedError):
    """Too many messages of the session, or of the tenant, wait."""

    reason = "QUEUE_FULL"

    @classmethod
    def of(cls, limit: int, *, scope: Literal["session", "tenant"]) -> "QueueFullError":
        """The error that tells how many may wait, and where."""
        return cls(
            f"{limit} messages of the {scope} are not answered yet.",
            metadata={"limit": str(limit), "scope": scope},
            retry_after=_QUEUE_RETRY_AFTER,
        )


class SequenceAheadError(OutOfRangeError):
    """The position is past the newest message."""

    reason = "SEQUENCE_AHEAD"

    @classmethod
    def of(cls, last_sequence: int) -> "SequenceAheadError":
        """The error that tells how far the session goes."""
        return cls(
            f"The newest message has sequence {last_sequence}.",
            metadata={"last_sequence": str(last_sequence)},
        )


class SlowConsumerError(AbortedError):
    """A caller reads too slowly what it watches."""

    reason = "SLOW_CONSUMER"

    @classmethod
    def after(cls, sequence: int | None) -> "SlowConsumerError":
        """The error that tells where to resume, if that is one place."""
        where = {} if sequence is None else {"resume_after_sequence": str(sequence)}
        return cls("The stream was read too slowly; resume it where it ended.", metadata=where)


class KnowledgeUnavailableError(UnavailableError):
    """The knowledge service is down or too slow."""

    reason = "KNOWLEDGE_UNAVAILABLE"


class ModelUnavailableError(UnavailableError):
    """The model's server is down, too slow or refuses for now, also after all retries."""

    reason = "MODEL_UNAVAILABLE"


class ModelRejectedError(FailedPreconditionError):
    """The model's server refuses the request itself; asking again would not help."""

    reason = "MODEL_REJECTED"


class ContextTooLongError(ModelRejectedError):
    """The model's server says that the request does not fit the model's context.

    Attributes:
        context_tokens: how much it reads, if the server says so.
    """

    context_tokens: int | None = None

    @classmethod
    def of(cls, message: str, context_tokens: int | None) -> "ContextTooLongError":
        """The error that tells how much the model reads."""
        error = cls(message)
        error.context_tokens = context_tokens
        return error


class EmptyAnswerError(UnavailableError):
    """The model answered with nothing usable."""

    reason = "EMPTY_ANSWER"


class FencedError(Exception):
    """The run is no longer this worker's: another took it, or it ended. Stop at once, discard."""
