"""Approvals, between the wire and the domain."""

from typing import Final

from chatmind.agent.v1 import approval_pb2, run_service_pb2

from services.agent.domain.approval_models import Answer, Approval, ApprovalState, Decision
from services.agent.domain.models import RunId, SessionId
from services.common.convert import canonical_id, from_time, to_text
from services.common.errors import FieldViolation, InvalidArgumentError

MOST_APPROVALS: Final = 50
"""How many a page has at most: with all arguments, so many fit into one message."""

_MAX_COMMENT_BYTES: Final = 2000
_STATES: Final = {
    ApprovalState.PENDING: approval_pb2.Approval.STATE_PENDING,
    ApprovalState.APPROVED: approval_pb2.Approval.STATE_APPROVED,
    ApprovalState.DENIED: approval_pb2.Approval.STATE_DENIED,
    ApprovalState.EXPIRED: approval_pb2.Approval.STATE_EXPIRED,
    ApprovalState.CANCELLED: approval_pb2.Approval.STATE_CANCELLED,
}
_FILTERS: Final = {value: state for state, value in _STATES.items()}
_DECISIONS: Final = {
    run_service_pb2.ResolveApprovalRequest.DECISION_APPROVE: Decision.APPROVE,
    run_service_pb2.ResolveApprovalRequest.DECISION_DENY: Decision.DENY,
}


def to_filter(request: run_service_pb2.ListApprovalsRequest) -> ApprovalState | None:
    """How those that are kept stand; None keeps all."""
    return _FILTERS.get(request.state)


def to_scope(
    request: run_service_pb2.ListApprovalsRequest,
) -> tuple[SessionId, None] | tuple[None, RunId]:
    """The session or the run that is named.

    Raises:
        InvalidArgumentError: none is, or both are.
    """
    if bool(request.session_id) == bool(request.run_id):
        description = "one of session_id and run_id must be set"
        raise InvalidArgumentError(
            description,
            violations=[FieldViolation(field, description) for field in ("session_id", "run_id")],
        )
    if request.run_id:
        return None, RunId(canonical_id(request.run_id))
    return SessionId(canonical_id(request.session_id)), None


def to_answer(request: run_service_pb2.ResolveApprovalRequest) -> Answer:
    """What the user says.

    Raises:
        InvalidArgumentError: it approves without naming what.
    """
    decision = _DECISIONS[request.decision]
    if decision is Decision.APPROVE and not request.arguments_digest:
        raise InvalidArgumentError.of_field("arguments_digest", "must be set to approve a call")
    comment = to_text(request.comment, field="comment", max_bytes=_MAX_COMMENT_BYTES)
    return Answer(decision, request.arguments_digest, comment)


def from_approval(value: Approval) -> approval_pb2.Approval:
    """An approval for the wire."""
    told = approval_pb2.Approval(
        id=value.id,
        run_id=value.run_id,
        session_id=value.session_id,
        tool_call_id=value.question.tool_call_id,
        tool_name=value.question.tool_name,
        arguments_json=value.question.arguments_json,
        arguments_digest=value.question.digest,
        state=_STATES[value.state],
        create_time=from_time(value.create_time),
        expire_time=from_time(value.expire_time),
        resolver_user_id=value.resolver_user_id,
        comment=value.comment,
    )
    if value.resolve_time is not None:
        told.resolve_time.FromDatetime(value.resolve_time)
    return told
