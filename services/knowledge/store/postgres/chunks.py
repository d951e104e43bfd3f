"""Searchable chunks in PostgreSQL.

A search is an exact scan of the bases asked for: their rows are found by the b-tree on the base,
their distances computed and sorted. So it returns min(limit, rows), whatever else is in the table.
"""

import numpy as np

from services.common.db import Pool, connection
from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.embedding import Vector
from services.knowledge.domain.models import Chunk, DocumentId, EmbeddingSpace
from services.knowledge.domain.search.scope import Nearby, SearchScope
from services.knowledge.store.postgres.rows import seen_by, to_chunk, with_columns
from services.knowledge.store.postgres.tables import ChunkTables, of_table

_LIST = with_columns("""
SELECT CHUNK FROM chunk_table c
WHERE c.document_id = $3 AND c.ordinal > $4
  AND c.generation = (
    SELECT d.generation FROM document d JOIN knowledge_base b ON b.id = d.knowledge_base_id
    WHERE d.id = $3 AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
  )
ORDER BY c.ordinal LIMIT $5
""")
# The added zero keeps an approximate index, should the table ever have one, from serving the order:
# it would give up rows of a base whose neighbours in the table belong to others.
_NEAREST = with_columns("""
WITH base AS MATERIALIZED (
    SELECT b.id FROM knowledge_base b
    WHERE b.id = ANY ($3::uuid[])
      AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
),
nearest AS MATERIALIZED (
    SELECT CHUNK, (c.embedding <=> $4) + 0.0::float8 AS distance
    FROM base JOIN chunk_table c ON c.knowledge_base_id = base.id
    WHERE $6::uuid[] IS NULL OR c.document_id = ANY ($6)
    ORDER BY distance, c.id LIMIT $5
)
SELECT c.*, d.display_name AS document_name
FROM nearest c JOIN document d ON d.id = c.document_id
ORDER BY c.distance, c.id
""")


class PostgresChunks:
    """`ChunkIndex` over PostgreSQL; the methods are explained there."""

    def __init__(self, pool: Pool, tables: ChunkTables) -> None:
        self._pool = pool
        self._tables = tables

    async def list_chunks(
        self, document_id: DocumentId, *, space: EmbeddingSpace, viewer: Identity, page: Page
    ) -> list[Chunk]:
        after = int(page.after[0]) if page.after else -1
        async with connection(self._pool) as lent:
            statement = of_table(_LIST, await self._tables.name(lent, space))
            rows = await lent.fetch(statement, *seen_by(viewer), document_id, after, page.size)
            return [to_chunk(row) for row in rows]

    async def nearest(
        self, query: Vector, *, scope: SearchScope, limit: int, viewer: Identity
    ) -> list[Nearby]:
        async with connection(self._pool) as lent:
            table = await self._tables.name(lent, scope.space)
            rows = await lent.fetch(
                of_table(_NEAREST, table),
                *seen_by(viewer),
                scope.base_ids,
                np.frombuffer(query, dtype=np.float32),
                limit,
                scope.document_ids or None,
            )
            return [
                Nearby(to_chunk(row), row["document_name"], 1.0 - row["distance"]) for row in rows
            ]
