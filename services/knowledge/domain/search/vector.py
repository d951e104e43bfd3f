"""The leg that ranks by the cosine between the question's vector and the chunks'."""

from services.common.identity import Identity
from services.knowledge.domain.ports import ChunkIndex
from services.knowledge.domain.search.query_vectors import QueryVectors
from services.knowledge.domain.search.scope import Nearby, SearchScope


class VectorLeg:
    """Finds the chunks that mean what the question means."""

    def __init__(self, chunks: ChunkIndex, queries: QueryVectors) -> None:
        self._chunks = chunks
        self._queries = queries

    async def find(
        self, text: str, *, scope: SearchScope, limit: int, identity: Identity
    ) -> list[Nearby]:
        """The nearest chunks, exactly min(limit, all in scope), nearest first.

        Raises:
            ServiceError: the question cannot be embedded now, see `QueryVectors.vector`.
        """
        query = await self._queries.vector(text, space=scope.space, identity=identity)
        return await self._chunks.nearest(query, scope=scope, limit=limit, viewer=identity)
