"""Sessions and their messages in memory."""

from collections.abc import Sequence
from dataclasses import replace

from services.agent.domain.errors import SubSessionError
from services.agent.domain.messages import Message
from services.agent.domain.models import AgentId, Session, SessionId
from services.agent.domain.stores import OWN_SESSIONS, Deleted, RequestKey, Which
from services.agent.store.memory.database import MemoryDatabase, bounded
from services.common.errors import NotFoundError
from services.common.identity import Identity
from services.common.paging import Listing, Page


class MemorySessionStore:
    """`SessionStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def create(
        self,
        identity: Identity,
        agent_id: AgentId,
        *,
        title: str = "",
        time_zone: str = "",
        request: RequestKey | None = None,
    ) -> Session:
        if request is not None:
            first = self._db.earlier(identity, request, "create_session")
            if first is not None:
                return self._db.session(identity, SessionId(first))
        agent = self._db.agent(identity, agent_id)
        session = self._db.open_session(identity, agent.id, title=title, time_zone=time_zone)
        session_id = session.id
        self._db.remember(identity, request, "create_session", session_id)
        return self._db.session(identity, session_id)

    async def get(self, identity: Identity, session_id: SessionId) -> Session:
        return self._db.session(identity, session_id)

    async def list(
        self, identity: Identity, page: Page, which: Which = OWN_SESSIONS
    ) -> Sequence[Session]:
        owner = (identity.tenant, identity.user_id)
        found = [
            self._db.session(identity, session.id)
            for session in sorted(self._db.sessions.values(), key=lambda s: s.id, reverse=True)
            if (session.tenant, session.user_id) == owner
            and (not page.after or session.id < page.after[0])
            and _listed(session, which)
        ]
        return found[: page.size]

    async def update(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        title: str | None = None,
        time_zone: str | None = None,
    ) -> Session:
        session = self._db.session(identity, session_id)
        self._db.sessions[session_id] = replace(
            session,
            title=session.title if title is None else title,
            time_zone=session.time_zone if time_zone is None else time_zone,
            update_time=self._db.clock(),
        )
        return self._db.session(identity, session_id)

    async def delete(self, identity: Identity, session_id: SessionId) -> Deleted:
        session = self._db.session(identity, session_id)
        if session.parent_run_id is not None:
            raise SubSessionError.of(session_id, session.parent_run_id)
        messages, runs = self._delete(session_id)
        return Deleted(messages, runs, self._db.clock())

    def _delete(self, session_id: SessionId) -> tuple[int, int]:
        """Delete a session and those of its sub-agents; gives how many messages and runs."""
        runs = [stored.run.id for stored in self._db.runs_of(session_id)]
        subs = [each.run.session_id for run_id in runs for each in self._db.subs(run_id)]
        below = [self._delete(sub) for sub in subs]
        for run_id in runs:
            del self._db.runs[run_id]
        self._db.memories.pop(session_id, None)
        del self._db.sessions[session_id]
        messages = len(self._db.messages.pop(session_id))
        return messages + sum(each[0] for each in below), len(runs) + sum(each[1] for each in below)


def _listed(session: Session, which: Which) -> bool:
    if which.agent_id not in {None, session.agent_id}:
        return False
    if which.parent_run_id is not None:
        return session.parent_run_id == which.parent_run_id
    return which.sub_sessions or session.parent_run_id is None


class MemoryMessageStore:
    """`MessageStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def after(
        self, identity: Identity, session_id: SessionId, sequence: int, *, most: int, max_bytes: int
    ) -> Listing[Message]:
        following = self._said(identity, session_id)[sequence:]
        return bounded(following, most=most, max_bytes=max_bytes)

    async def before(
        self,
        identity: Identity,
        session_id: SessionId,
        sequence: int | None,
        *,
        most: int,
        max_bytes: int,
    ) -> Listing[Message]:
        said = self._said(identity, session_id)
        preceding = said if sequence is None else said[: max(0, sequence - 1)]
        return bounded(preceding[::-1], most=most, max_bytes=max_bytes)

    def _said(self, identity: Identity, session_id: SessionId) -> list[Message]:
        try:
            self._db.session(identity, session_id)
        except NotFoundError:
            return []
        return self._db.messages[session_id]
