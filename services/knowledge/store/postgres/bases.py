"""Knowledge bases in PostgreSQL.

Whoever changes what a base holds locks its row before any other, so that no two transactions ever
wait for each other.
"""

from collections.abc import Sequence

import asyncpg

from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.errors import base_not_found
from services.knowledge.domain.models import (
    AcceptedRequest,
    BaseChanges,
    DeletionReceipt,
    KnowledgeBase,
    KnowledgeBaseId,
)
from services.knowledge.store.postgres.requests import find_request, record_request
from services.knowledge.store.postgres.rows import (
    FIRST_ID,
    changed_by,
    seen_by,
    to_base,
    to_space,
    with_columns,
)
from services.knowledge.store.postgres.tables import ChunkTables, of_table

_DELETION_SECONDS = 60.0

_INSERT = with_columns("""
INSERT INTO knowledge_base AS b (
    id, tenant, owner_user_id, display_name, description, type, embedding_model,
    embedding_dimensions, embed_field, max_tokens, overlap_tokens, visibility,
    create_time, update_time
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now(), now())
RETURNING BASE
""")
_GET = with_columns("""
SELECT BASE FROM knowledge_base b
WHERE b.id = $3 AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
""")
_GET_ALL = with_columns("""
SELECT BASE FROM knowledge_base b
WHERE b.id = ANY ($3::uuid[])
  AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
""")
_LIST = with_columns("""
SELECT * FROM (
    (SELECT BASE FROM knowledge_base b
     WHERE b.tenant = $1 AND b.owner_user_id = $2 AND b.id > $3
     ORDER BY b.id LIMIT $4)
    UNION ALL
    (SELECT BASE FROM knowledge_base b
     WHERE b.tenant = $1 AND b.visibility = 'TENANT' AND b.owner_user_id <> $2 AND b.id > $3
     ORDER BY b.id LIMIT $4)
) AS visible
ORDER BY id LIMIT $4
""")
_LIST_NAMED = with_columns("""
SELECT BASE FROM knowledge_base b
WHERE b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT') AND b.id > $3
  AND b.display_name = $5
ORDER BY b.id LIMIT $4
""")
_UPDATE = with_columns("""
UPDATE knowledge_base b
SET display_name = coalesce($5, b.display_name),
    description = coalesce($6, b.description),
    max_tokens = coalesce($7, b.max_tokens),
    overlap_tokens = coalesce($8, b.overlap_tokens),
    visibility = coalesce($9, b.visibility),
    update_time = now()
WHERE b.id = $4 AND b.tenant = $1
  AND (b.owner_user_id = $2 OR (b.visibility = 'TENANT' AND $3))
RETURNING BASE
""")
_LOCK_TO_DELETE = """
SELECT b.embedding_model, b.embedding_dimensions FROM knowledge_base b
WHERE b.id = $4 AND b.tenant = $1
  AND (b.owner_user_id = $2 OR (b.visibility = 'TENANT' AND $3))
FOR UPDATE
"""
_DELETE_DOCUMENTS = """
WITH gone AS (DELETE FROM document WHERE knowledge_base_id = $1 RETURNING content_id),
     content AS (DELETE FROM document_content USING gone WHERE id = gone.content_id)
SELECT count(*) FROM gone
"""
_DELETE_CHUNKS = """
WITH gone AS (DELETE FROM chunk_table WHERE knowledge_base_id = $1 RETURNING 1)
SELECT count(*) FROM gone
"""
_DELETE = "DELETE FROM knowledge_base WHERE id = $1 RETURNING now()"


class PostgresBases:
    """`BaseStore` over PostgreSQL; the methods are explained there."""

    def __init__(self, pool: Pool, tables: ChunkTables) -> None:
        self._pool = pool
        self._tables = tables

    async def create_base(
        self, base: KnowledgeBase, *, request: AcceptedRequest | None
    ) -> KnowledgeBase:
        try:
            return await self._create(base, request)
        except asyncpg.UniqueViolationError:  # the same request, at the same time
            return await self._create(base, request)

    async def requested_base(
        self, request: AcceptedRequest, *, viewer: Identity
    ) -> KnowledgeBaseId | None:
        async with connection(self._pool) as lent:
            made = await find_request(lent, request, viewer=viewer)
            return None if made is None else KnowledgeBaseId(made)

    async def get_base(self, base_id: KnowledgeBaseId, *, viewer: Identity) -> KnowledgeBase | None:
        async with connection(self._pool) as lent:
            return await _get(lent, base_id, viewer)

    async def get_bases(
        self, base_ids: Sequence[KnowledgeBaseId], *, viewer: Identity
    ) -> list[KnowledgeBase]:
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_GET_ALL, *seen_by(viewer), base_ids)
            return [to_base(row) for row in rows]

    async def list_bases(
        self, *, viewer: Identity, display_name: str, page: Page
    ) -> list[KnowledgeBase]:
        after = page.after[0] if page.after else FIRST_ID
        scope = (*seen_by(viewer), after, page.size)
        async with connection(self._pool) as lent:
            if display_name:
                rows = await lent.fetch(_LIST_NAMED, *scope, display_name)
            else:
                rows = await lent.fetch(_LIST, *scope)
            return [to_base(row) for row in rows]

    async def update_base(
        self, base_id: KnowledgeBaseId, changes: BaseChanges, *, viewer: Identity
    ) -> KnowledgeBase | None:
        chunking, visibility = changes.chunking, changes.visibility
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(
                _UPDATE,
                *changed_by(viewer),
                base_id,
                changes.display_name,
                changes.description,
                chunking.max_tokens if chunking else None,
                chunking.overlap_tokens if chunking else None,
                visibility.value if visibility else None,
            )
            return None if row is None else to_base(row)

    async def delete_base(
        self, base_id: KnowledgeBaseId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        patience = _DELETION_SECONDS + self._pool.timeouts.answer_margin
        async with transaction(self._pool, statement_timeout=_DELETION_SECONDS) as lent:
            locked = await lent.fetchrow(_LOCK_TO_DELETE, *changed_by(viewer), base_id)
            if locked is None:
                return None
            table = await self._tables.name(lent, to_space(locked))
            delete_chunks = of_table(_DELETE_CHUNKS, table)
            documents = await lent.fetchval(_DELETE_DOCUMENTS, base_id, timeout=patience)
            chunks = await lent.fetchval(delete_chunks, base_id, timeout=patience)
            return DeletionReceipt(documents, chunks, await lent.fetchval(_DELETE, base_id))

    async def _create(self, base: KnowledgeBase, request: AcceptedRequest | None) -> KnowledgeBase:
        owner = Identity(base.tenant, base.owner_user_id)
        async with transaction(self._pool) as lent:
            if request is not None:
                made = await find_request(lent, request, viewer=owner)
                if made is not None:
                    return await _made_before(lent, KnowledgeBaseId(made), owner)
                await record_request(lent, request, base.id, viewer=owner)
            await self._tables.open(lent, base.space)
            rows = await lent.fetch(_INSERT, *_values(base))
            return to_base(rows[0])


async def _made_before(
    lent: PooledConnection, base_id: KnowledgeBaseId, owner: Identity
) -> KnowledgeBase:
    base = await _get(lent, base_id, owner)
    if base is None:
        raise base_not_found(base_id)
    return base


async def _get(
    lent: PooledConnection, base_id: KnowledgeBaseId, viewer: Identity
) -> KnowledgeBase | None:
    row = await lent.fetchrow(_GET, *seen_by(viewer), base_id)
    return None if row is None else to_base(row)


def _values(base: KnowledgeBase) -> tuple[object, ...]:
    settings = base.settings
    return (
        base.id,
        base.tenant,
        base.owner_user_id,
        settings.display_name,
        settings.description,
        base.type.value,
        base.space.model,
        base.space.dimensions,
        base.embed_field.value,
        settings.chunking.max_tokens,
        settings.chunking.overlap_tokens,
        settings.visibility.value,
    )
