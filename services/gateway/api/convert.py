"""Converts between the contract's messages and the gateway's values."""

from collections.abc import Mapping
from typing import assert_never

from chatmind.gateway.v1 import (
    access_pb2,
    access_service_pb2,
    gateway_service_pb2,
    message_pb2,
)

from services.common.convert import from_time, to_time
from services.common.identity import Role
from services.common.text import clean
from services.gateway.domain.messages import (
    Accepted,
    Event,
    GoAway,
    Heartbeat,
    Message,
    NewMessage,
    RunState,
    RunUpdate,
    WhenBusy,
)
from services.gateway.domain.models import ApiKey, NewKey, Scope
from services.gateway.domain.policy import scopes_of_key

_ROLES: Mapping[Role, access_pb2.Role.ValueType] = {
    Role.VIEWER: access_pb2.ROLE_VIEWER,
    Role.MEMBER: access_pb2.ROLE_MEMBER,
    Role.ADMIN: access_pb2.ROLE_ADMIN,
    Role.OPERATOR: access_pb2.ROLE_OPERATOR,
}
_SCOPES: Mapping[Scope, access_pb2.Scope.ValueType] = {
    Scope.READ: access_pb2.SCOPE_READ,
    Scope.WRITE: access_pb2.SCOPE_WRITE,
    Scope.CHAT: access_pb2.SCOPE_CHAT,
    Scope.ADMIN: access_pb2.SCOPE_ADMIN,
}
_ROLES_BY_NUMBER = {number: role for role, number in _ROLES.items()}
_SCOPES_BY_NUMBER = {number: scope for scope, number in _SCOPES.items()}
_DEFAULT_ROLE = access_pb2.ROLE_MEMBER
_STATES: Mapping[RunState | None, message_pb2.RunUpdate.State.ValueType] = {
    None: message_pb2.RunUpdate.STATE_UNSPECIFIED,
    RunState.IDLE: message_pb2.RunUpdate.STATE_IDLE,
    RunState.PLANNING: message_pb2.RunUpdate.STATE_PLANNING,
    RunState.THINKING: message_pb2.RunUpdate.STATE_THINKING,
    RunState.EXECUTING: message_pb2.RunUpdate.STATE_EXECUTING,
    RunState.AWAITING_APPROVAL: message_pb2.RunUpdate.STATE_AWAITING_APPROVAL,
    RunState.FINISHED: message_pb2.RunUpdate.STATE_FINISHED,
    RunState.ERROR: message_pb2.RunUpdate.STATE_ERROR,
    RunState.CANCELLED: message_pb2.RunUpdate.STATE_CANCELLED,
}
_WHEN_BUSY: Mapping[int, WhenBusy] = {
    gateway_service_pb2.WHEN_BUSY_UNSPECIFIED: WhenBusy.ENQUEUE,
    gateway_service_pb2.WHEN_BUSY_ENQUEUE: WhenBusy.ENQUEUE,
    gateway_service_pb2.WHEN_BUSY_REJECT: WhenBusy.REJECT,
    gateway_service_pb2.WHEN_BUSY_INTERRUPT: WhenBusy.INTERRUPT,
    gateway_service_pb2.WHEN_BUSY_ROLLBACK: WhenBusy.ROLLBACK,
}


def to_new_message(request: gateway_service_pb2.SendMessageRequest) -> NewMessage:
    """The message to send."""
    return NewMessage(clean(request.text), request.request_id, _WHEN_BUSY[request.when_busy])


def from_accepted(accepted: Accepted) -> gateway_service_pb2.SendMessageResponse:
    """Where the message is stored, and the run that answers it."""
    return gateway_service_pb2.SendMessageResponse(
        session_id=accepted.session_id,
        run_id=accepted.run_id,
        message_id=accepted.message_id,
        sequence=accepted.sequence,
    )


def from_event(event: Event, through: int) -> gateway_service_pb2.StreamMessagesResponse:
    """One event of a session.

    Args:
        event: the event.
        through: the sequence up to which every message has been sent.
    """
    response = gateway_service_pb2.StreamMessagesResponse(through_sequence=through)
    match event:
        case Message():
            response.message.MergeFromString(event.encoded)
        case RunUpdate():
            response.run.CopyFrom(from_run_update(event))
        case Heartbeat():
            response.heartbeat.time.CopyFrom(from_time(event.time))
        case GoAway():
            response.go_away.resume_after_sequence = through
        case _:
            assert_never(event)
    return response


def from_run_update(run: RunUpdate) -> message_pb2.RunUpdate:
    """The state of a run."""
    return message_pb2.RunUpdate(
        run_id=run.run_id,
        session_id=run.session_id,
        state=_STATES[run.state],
        stop_reason=run.stop_reason,
        step_count=run.step_count,
        error_reason=run.error_reason,
        error_message=run.error_message,
        discarded=run.discarded,
    )


def to_new_key(request: access_service_pb2.CreateApiKeyRequest) -> NewKey:
    """The key to create; an empty tenant stays empty."""
    expires = request.HasField("expire_time")
    return NewKey(
        display_name=clean(request.display_name),
        tenant=request.tenant,
        user_id=request.user_id,
        roles=frozenset(_ROLES_BY_NUMBER[each] for each in request.roles or (_DEFAULT_ROLE,)),
        narrowed_to=frozenset(_SCOPES_BY_NUMBER[each] for each in request.scopes),
        expire_time=to_time(request.expire_time) if expires else None,
    )


def from_api_key(key: ApiKey) -> access_pb2.ApiKey:
    """A key, without its secret."""
    converted = access_pb2.ApiKey(
        id=key.id,
        display_name=key.display_name,
        tenant=key.tenant,
        user_id=key.user_id,
        roles=sorted(_ROLES[role] for role in key.roles),
        scopes=sorted(_SCOPES[scope] for scope in scopes_of_key(key)),
        create_time=from_time(key.create_time),
    )
    if key.expire_time is not None:
        converted.expire_time.CopyFrom(from_time(key.expire_time))
    if key.revoke_time is not None:
        converted.revoke_time.CopyFrom(from_time(key.revoke_time))
    return converted
