"""Conversations: opening, naming and deleting them, and reading what was said."""

from typing import Final

from services.agent.domain import hints
from services.agent.domain.messages import Message
from services.agent.domain.models import AgentId, Session, SessionId
from services.agent.domain.stores import (
    OWN_SESSIONS,
    Deleted,
    MessageStore,
    RequestKey,
    SessionStore,
    Which,
)
from services.common.hints import Notifier
from services.common.identity import Identity
from services.common.paging import Listing, Page

MAX_PAGE_BYTES: Final = 3 * 1024 * 1024 - 4096
"""What the messages of one page take on the wire at most; leaves room for the page token."""


class Sessions:
    """Opens, shows and deletes sessions; each is seen by its user alone."""

    def __init__(self, store: SessionStore, *, messages: MessageStore, notifier: Notifier) -> None:
        self._store = store
        self._messages = messages
        self._notifier = notifier

    async def create(
        self,
        identity: Identity,
        agent_id: AgentId,
        *,
        title: str = "",
        time_zone: str = "",
        request: RequestKey | None = None,
    ) -> Session:
        """A new session of this user's with an agent.

        Raises:
            NotFoundError: the user sees no such agent.
            RequestIdReusedError: the request came before with other content.
        """
        return await self._store.create(
            identity, agent_id, title=title, time_zone=time_zone, request=request
        )

    async def get(self, identity: Identity, session_id: SessionId) -> Session:
        """A session of the user's; NotFoundError where there is none."""
        return await self._store.get(identity, session_id)

    async def list(
        self, identity: Identity, page: Page, which: Which = OWN_SESSIONS
    ) -> Listing[Session]:
        """The user's sessions, newest first."""
        return page.cut(await self._store.list(identity, page.with_one_more(), which))

    async def update(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        title: str | None = None,
        time_zone: str | None = None,
    ) -> Session:
        """The session with what is given changed; NotFoundError where there is none."""
        return await self._store.update(identity, session_id, title=title, time_zone=time_zone)

    async def delete(self, identity: Identity, session_id: SessionId) -> Deleted:
        """Delete a session with all that belongs to it; see `SessionStore.delete`."""
        deleted = await self._store.delete(identity, session_id)
        self._notifier.notify(session_id)
        self._notifier.notify(hints.STOPS)
        return deleted

    async def messages(
        self, identity: Identity, session_id: SessionId, page: Page, *, newest_first: bool = False
    ) -> Listing[Message]:
        """A page of what was said; its sort key is the sequence.

        Raises:
            NotFoundError: the user has no such session.
        """
        await self._store.get(identity, session_id)
        last = int(page.after[0]) if page.after else None
        most = page.size
        if newest_first:
            return await self._messages.before(
                identity, session_id, last, most=most, max_bytes=MAX_PAGE_BYTES
            )
        return await self._messages.after(
            identity, session_id, last or 0, most=most, max_bytes=MAX_PAGE_BYTES
        )
