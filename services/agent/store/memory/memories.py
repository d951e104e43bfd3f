"""What is remembered of sessions, in memory."""

from dataclasses import replace

from services.agent.domain.memory.models import LAST, Memory, Place, Said, Summary
from services.agent.domain.models import SessionId
from services.agent.store.memory.database import MemoryDatabase, bounded
from services.common.errors import NotFoundError
from services.common.identity import Identity
from services.common.paging import Listing


class MemoryMemoryStore:
    """`MemoryStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def get(self, identity: Identity, session_id: SessionId) -> Memory:
        if not self._own(identity, session_id):
            return Memory()
        return self._db.memories.get(session_id, Memory())

    async def open_turn(self, identity: Identity, session_id: SessionId) -> int:
        if not self._own(identity, session_id):
            return LAST
        return next((each.run.turn for each in self._db.unfinished(session_id)), LAST)

    async def put(
        self, identity: Identity, session_id: SessionId, summary: Summary, *, revision: int
    ) -> Memory | None:
        if not self._own(identity, session_id):
            return None
        return self._db.put_summary(session_id, summary, revision=revision)

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:
        self._db.session(identity, session_id)
        memory = self._db.memories.get(session_id, Memory())
        turns = [stored.run.turn for stored in self._db.runs_of(session_id)]
        cleared = max([memory.cleared_turn, *turns])
        memory = replace(memory, revision=memory.revision + 1, cleared_turn=cleared, summary=None)
        self._db.memories[session_id] = memory
        return memory

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
        if not self._own(identity, session_id):
            return Listing([], more=False)
        said = sorted(
            (
                Said(Place(self._db.runs[each.run_id].run.turn, each.sequence), each)
                for each in self._db.messages[session_id]
                if not each.discarded
            ),
            key=lambda each: each.place,
            reverse=newest_first,
        )
        found = [each for each in said if after < each.place < before]
        kept = bounded([each.message for each in found], most=most, max_bytes=max_bytes)
        return Listing(found[: len(kept.items)], kept.more)

    def _own(self, identity: Identity, session_id: SessionId) -> bool:
        try:
            self._db.session(identity, session_id)
        except NotFoundError:
            return False
        return True
