"""Agents, sessions and knowledge bases, by the names or ids that people type."""

import uuid
from collections.abc import Sequence
from typing import Protocol, TypeVar

from chatmind.agent.v1 import agent_pb2, agent_service_pb2, session_pb2
from chatmind.knowledge.v1 import knowledge_base_pb2, knowledge_service_pb2

from cli.client import CALL_SECONDS, Gateway
from cli.errors import CommandError


class Resource(Protocol):
    """Something with an id."""

    id: str


ResourceT = TypeVar("ResourceT", bound=Resource)


def agents_called(gateway: Gateway, name: str) -> Sequence[agent_pb2.Agent]:
    """The agents of this name that the caller can see, oldest first, or the one with this id.

    An empty name, as an unset shell variable makes it, names none.
    """
    if not name:
        return ()
    if _is_id(name):
        by_id = agent_service_pb2.GetAgentRequest(agent_id=name)
        return (gateway.agents.GetAgent(by_id, timeout=CALL_SECONDS).agent,)
    request = agent_service_pb2.ListAgentsRequest(display_name=name)
    return gateway.agents.ListAgents(request, timeout=CALL_SECONDS).agents


def one_agent(gateway: Gateway, name: str) -> agent_pb2.Agent:
    """The agent of this name or id.

    Raises:
        CommandError: there is none, or there are several.
    """
    agent = _at_most_one(agents_called(gateway, name), kind="agent", name=name)
    if agent is None:
        raise CommandError(f"no agent is called {name!r}; create one with `chatmind agent create`")
    return agent


def first_agent(gateway: Gateway) -> agent_pb2.Agent:
    """The oldest agent that the caller can see.

    Raises:
        CommandError: there is none.
    """
    request = agent_service_pb2.ListAgentsRequest(page_size=1)
    for agent in gateway.agents.ListAgents(request, timeout=CALL_SECONDS).agents:
        return agent
    raise CommandError("there is no agent yet; create one with `chatmind agent create`")


def one_session(gateway: Gateway, session_id: str) -> session_pb2.Session:
    """The session with this id.

    Raises:
        CommandError: it is no id.
    """
    if not _is_id(session_id):
        raise CommandError(
            f"{session_id!r} is not the id of a session; `chatmind session list` shows yours"
        )
    request = agent_service_pb2.GetSessionRequest(session_id=session_id)
    return gateway.agents.GetSession(request, timeout=CALL_SECONDS).session


def bases_called(gateway: Gateway, name: str) -> Sequence[knowledge_base_pb2.KnowledgeBase]:
    """The bases of this name that the caller can see, oldest first, or the one with this id.

    An empty name, as an unset shell variable makes it, names none.
    """
    if not name:
        return ()
    if _is_id(name):
        by_id = knowledge_service_pb2.GetKnowledgeBaseRequest(knowledge_base_id=name)
        return (gateway.knowledge.GetKnowledgeBase(by_id, timeout=CALL_SECONDS).knowledge_base,)
    request = knowledge_service_pb2.ListKnowledgeBasesRequest(display_name=name)
    return gateway.knowledge.ListKnowledgeBases(request, timeout=CALL_SECONDS).knowledge_bases


def one_base(gateway: Gateway, name: str) -> knowledge_base_pb2.KnowledgeBase:
    """The base of this name or id.

    Raises:
        CommandError: there is none, or there are several.
    """
    base = _at_most_one(bases_called(gateway, name), kind="base", name=name)
    if base is None:
        raise CommandError(f"no knowledge base is called {name!r}")
    return base


def one_base_or_new(
    gateway: Gateway, wanted: knowledge_base_pb2.KnowledgeBase
) -> knowledge_base_pb2.KnowledgeBase:
    """The base with the wanted name or id, created as wanted if there is none.

    Raises:
        CommandError: there are several.
    """
    name = wanted.display_name
    found = _at_most_one(bases_called(gateway, name), kind="base", name=name)
    return found or new_base(gateway, wanted)


def new_base(
    gateway: Gateway, wanted: knowledge_base_pb2.KnowledgeBase
) -> knowledge_base_pb2.KnowledgeBase:
    """A new base as wanted."""
    request = knowledge_service_pb2.CreateKnowledgeBaseRequest(knowledge_base=wanted)
    return gateway.knowledge.CreateKnowledgeBase(request, timeout=CALL_SECONDS).knowledge_base


def _is_id(name: str) -> bool:
    """Whether this is an id as ChatMind makes them, rather than a name."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _at_most_one(found: Sequence[ResourceT], *, kind: str, name: str) -> ResourceT | None:
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise CommandError(f"several {kind}s are called {name!r}; name one by its id: {ids}")
    return found[0] if found else None
