"""What chat memory needs of a store; each session is seen by its user alone."""

from typing import Protocol

from services.agent.domain.memory.models import Memory, Place, Said, Summary
from services.agent.domain.models import SessionId
from services.common.identity import Identity
from services.common.paging import Listing


class MemoryStore(Protocol):
    """Keeps what is remembered of sessions, and reads their messages as models are shown them."""

    async def get(self, identity: Identity, session_id: SessionId) -> Memory:
        """What is remembered of a session; nothing where the user has no such session."""

    async def open_turn(self, identity: Identity, session_id: SessionId) -> int:
        """The first turn that has not ended; past every turn where all have."""

    async def put(
        self, identity: Identity, session_id: SessionId, summary: Summary, *, revision: int
    ) -> Memory | None:
        """Replace the summary by one that covers more turns.

        Args:
            identity: the user.
            session_id: the session.
            summary: the new one.
            revision: of the memory that it was made from.

        Returns:
            the memory as it is now; None, and nothing is changed, where that is no longer its
            revision, where the summary covers no more than the one before, or where the user has
            no such session.
        """

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:
        """Forget all turns there are, and the summary; messages stay.

        Raises:
            NotFoundError: the user has no such session.
        """

    async def page(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        after: Place,
        before: Place,
        newest_first: bool,
        most: int,
        max_bytes: int,
    ) -> Listing[Said]:
        """Messages between two places, without discarded ones; none of a session of another's.

        Args:
            identity: the user.
            session_id: the session.
            after: behind this place.
            before: and before this one.
            newest_first: from which end.
            most: how many at most.
            max_bytes: stop before they take more on the wire; the first is given in any case.
        """
