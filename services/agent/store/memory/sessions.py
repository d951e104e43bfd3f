"""Sessions and their messages in memory."""

from collections.abc import Sequence
from dataclasses import replace

from services.agent.domain.messages import Message
from services.agent.domain.models import AgentId, Session, SessionId
from services.agent.domain.stores import Deleted, RequestKey
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
        request: RequestKey | None = None,
    ) -> Session:
        if request is not None:
            first = self._db.earlier(identity, request, "create_session")
            if first is not None:
                return self._db.session(identity, SessionId(first))
        agent = self._db.agent(identity, agent_id)
        now = self._db.clock()
        session_id = SessionId(self._db.new_id())
        self._db.sessions[session_id] = Session(
            id=session_id,
            tenant=identity.tenant,
            user_id=identity.user_id,
            agent_id=agent.id,
            title=title,
            last_sequence=0,
            active_run_id=None,
            create_time=now,
            update_time=now,
        )
        self._db.messages[session_id] = []
        self._db.remember(identity, request, "create_session", session_id)
        return self._db.session(identity, session_id)

    async def get(self, identity: Identity, session_id: SessionId) -> Session:
        return self._db.session(identity, session_id)

    async def list(
        self, identity: Identity, page: Page, *, agent_id: AgentId | None = None
    ) -> Sequence[Session]:
        owner = (identity.tenant, identity.user_id)
        found = [
            self._db.session(identity, session.id)
            for session in sorted(self._db.sessions.values(), key=lambda s: s.id, reverse=True)
            if (session.tenant, session.user_id) == owner
            and (not page.after or session.id < page.after[0])
            and agent_id in (None, session.agent_id)
        ]
        return found[: page.size]

    async def rename(self, identity: Identity, session_id: SessionId, title: str) -> Session:
        session = self._db.session(identity, session_id)
        self._db.sessions[session_id] = replace(session, title=title, update_time=self._db.clock())
        return self._db.session(identity, session_id)

    async def delete(self, identity: Identity, session_id: SessionId) -> Deleted:
        self._db.session(identity, session_id)
        runs = [stored.run.id for stored in self._db.runs_of(session_id)]
        for run_id in runs:
            del self._db.runs[run_id]
        messages = self._db.messages.pop(session_id)
        del self._db.sessions[session_id]
        return Deleted(len(messages), len(runs), self._db.clock())


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
