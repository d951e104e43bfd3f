"""Searchable chunks in memory."""

import numpy as np

from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.embedding import Vector
from services.knowledge.domain.models import Chunk, DocumentId, EmbeddingSpace
from services.knowledge.domain.search.scope import Nearby, SearchScope
from services.knowledge.store.memory.state import MemoryState, StoredDocument


class MemoryChunks:
    """`ChunkIndex` in memory; the methods are explained there."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def list_chunks(
        self, document_id: DocumentId, *, space: EmbeddingSpace, viewer: Identity, page: Page
    ) -> list[Chunk]:
        stored = self._state.stored(document_id, viewer=viewer)
        if stored is None or self._state.base_of(stored).space != space:
            return []
        first = int(page.after[0]) + 1 if page.after else 0
        return [each.chunk for each in stored.chunks[first : first + page.size]]

    async def nearest(
        self, query: Vector, *, scope: SearchScope, limit: int, viewer: Identity
    ) -> list[Nearby]:
        found = [
            Nearby(each.chunk, stored.document.display_name, _cosine(query, each.vector))
            for stored in self._state.documents.values()
            if self._in_scope(stored, scope, viewer)
            for each in stored.chunks
        ]
        found.sort(key=lambda each: (-each.cosine, each.chunk.id))
        return found[:limit]

    def _in_scope(self, stored: StoredDocument, scope: SearchScope, viewer: Identity) -> bool:
        base = self._state.base_of(stored)
        if base.id not in scope.base_ids or base.space != scope.space:
            return False
        wanted = not scope.document_ids or stored.document.id in scope.document_ids
        return wanted and base.visible_to(viewer)


def _cosine(one: Vector, other: Vector) -> float:
    """The cosine of vectors kept with 16 bits a component, as the database keeps them."""
    a, b = _halved(one), _halved(other)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _halved(vector: Vector) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.frombuffer(vector, dtype=np.float32).astype(np.float16).astype(np.float64)
