"""Sessions and messages between the wire and the domain."""

from collections.abc import Iterable
from typing import Final

from chatmind.agent.v1 import agent_service_pb2, session_pb2

from services.agent.api.convert.common import to_time_zone
from services.agent.domain.messages import Citation, Message, Role
from services.agent.domain.models import AgentId, RunId, Session
from services.agent.domain.stores import Deleted, Which
from services.common.convert import canonical_id, from_json, from_time, required_id, to_text

CHANGEABLE: Final = frozenset({"title", "time_zone"})
"""Paths of what may be changed in a session."""

_ROLES: Final = {
    Role.USER: session_pb2.Message.ROLE_USER,
    Role.ASSISTANT: session_pb2.Message.ROLE_ASSISTANT,
    Role.TOOL: session_pb2.Message.ROLE_TOOL,
    Role.SYSTEM: session_pb2.Message.ROLE_SYSTEM,
}


def to_agent_id(value: session_pb2.Session) -> AgentId:
    """Whom a new session is to be held with.

    Raises:
        InvalidArgumentError: that is not said.
    """
    return AgentId(required_id(value.agent_id, field="session.agent_id"))


def to_which(request: agent_service_pb2.ListSessionsRequest) -> Which:
    """Which sessions are asked for."""
    parent = request.parent_run_id
    return Which(
        agent_id=AgentId(canonical_id(request.agent_id)) if request.agent_id else None,
        parent_run_id=RunId(canonical_id(parent)) if parent else None,
        sub_sessions=request.include_sub_sessions,
    )


def to_title(value: session_pb2.Session) -> str:
    """A session's title.

    Raises:
        InvalidArgumentError: it cannot be kept.
    """
    return to_text(value.title, field="session.title", max_bytes=400)


def to_session_zone(value: session_pb2.Session) -> str:
    """Where a session's user is.

    Raises:
        InvalidArgumentError: there is no such time zone.
    """
    return to_time_zone(value.time_zone, field="session.time_zone")


def from_session(value: Session) -> session_pb2.Session:
    """A session for the wire."""
    return session_pb2.Session(
        id=value.id,
        agent_id=value.agent_id,
        title=value.title,
        time_zone=value.time_zone,
        last_sequence=value.last_sequence,
        active_run_id=value.active_run_id or "",
        create_time=from_time(value.create_time),
        update_time=from_time(value.update_time),
        parent_run_id=value.parent_run_id or "",
        parent_call_key=value.parent_call_key or "",
    )


def from_message(value: Message) -> session_pb2.Message:
    """A message for the wire."""
    return session_pb2.Message(
        id=value.id,
        session_id=value.session_id,
        run_id=value.run_id,
        sequence=value.sequence,
        role=_ROLES[value.role],
        text=value.text,
        tool_calls=[
            session_pb2.ToolCall(id=call.id, name=call.name, arguments_json=call.arguments_json)
            for call in value.tool_calls
        ],
        tool_call_id=value.tool_call_id or "",
        tool_name=value.tool_name or "",
        citations=_from_citations(value.citations),
        metadata=from_json(value.metadata) if value.metadata else None,
        create_time=from_time(value.create_time),
        discarded=value.discarded,
    )


def from_deleted(value: Deleted) -> agent_service_pb2.DeleteSessionResponse:
    """What is gone with a session, for the wire."""
    return agent_service_pb2.DeleteSessionResponse(
        messages=value.messages, runs=value.runs, delete_time=from_time(value.time)
    )


def _from_citations(values: Iterable[Citation]) -> list[session_pb2.Citation]:
    return [
        session_pb2.Citation(
            label=each.label,
            knowledge_base_id=each.knowledge_base_id,
            document_id=each.document_id,
            chunk_id=each.chunk_id,
            document_name=each.document_name,
            heading_path=each.heading_path,
            start_line=each.start_line,
            end_line=each.end_line,
            score=each.score,
        )
        for each in values
    ]
