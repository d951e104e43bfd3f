"""Documents and their content in PostgreSQL.

A base's row is locked before anything in it, see `bases`. The content goes in before that
lock is taken: uploads into one base do not wait for each other's bytes.
"""

import asyncpg

from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.errors import document_not_found
from services.knowledge.domain.metadata import metadata_json
from services.knowledge.domain.models import (
    AcceptedRequest,
    ContentId,
    DeletionReceipt,
    Document,
    DocumentId,
    DocumentState,
    FreshIds,
    KnowledgeBase,
    KnowledgeBaseId,
    Upload,
)
from services.knowledge.store.postgres.requests import find_request, record_request
from services.knowledge.store.postgres.rows import (
    FIRST_ID,
    changed_by,
    seen_by,
    to_base,
    to_document,
    to_space,
    with_columns,
)
from services.knowledge.store.postgres.tables import ChunkTables, of_table

_CONTENT_SECONDS = 30.0

_GET = with_columns("""
SELECT DOCUMENT FROM document d JOIN knowledge_base b ON b.id = d.knowledge_base_id
WHERE d.id = $3 AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
""")
_BASE_OF = with_columns("""
SELECT BASE FROM document d JOIN knowledge_base b ON b.id = d.knowledge_base_id
WHERE d.id = $3 AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
""")
_LIST = with_columns("""
SELECT DOCUMENT FROM document d JOIN knowledge_base b ON b.id = d.knowledge_base_id
WHERE d.knowledge_base_id = $3 AND d.id > $4
  AND b.tenant = $1 AND (b.owner_user_id = $2 OR b.visibility = 'TENANT')
ORDER BY d.id LIMIT $5
""")
_NAMED = with_columns("""
SELECT DOCUMENT FROM document d WHERE d.knowledge_base_id = $1 AND d.display_name = $2
""")
_KEEP_BASE = """
SELECT true FROM knowledge_base b
WHERE b.id = $4 AND b.tenant = $1
  AND (b.owner_user_id = $2 OR (b.visibility = 'TENANT' AND $3))
FOR KEY SHARE
"""
_LOCK_BASE = "SELECT FROM knowledge_base WHERE id = $1 FOR NO KEY UPDATE"
_LOCK_BASE_OF = """
SELECT b.id, b.embedding_model, b.embedding_dimensions
FROM document d JOIN knowledge_base b ON b.id = d.knowledge_base_id
WHERE d.id = $4 AND b.tenant = $1
  AND (b.owner_user_id = $2 OR (b.visibility = 'TENANT' AND $3))
FOR NO KEY UPDATE OF b
"""
_INSERT_CONTENT = "INSERT INTO document_content (id, content) VALUES ($1, $2)"
_DELETE_CONTENT = "DELETE FROM document_content WHERE id = $1"
_INSERT = with_columns("""
INSERT INTO document AS d (
    id, knowledge_base_id, display_name, media_type, metadata, content_id, content_hash,
    size_bytes, claim_after, create_time, update_time
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), now(), now())
RETURNING DOCUMENT
""")
_NEW_VERSION = with_columns("""
UPDATE document d
SET version = d.version + 1, media_type = $2, metadata = $3, content_id = $4, content_hash = $5,
    size_bytes = $6, state = 'PENDING', chunks_done = 0, chunks_total = 0, error = NULL,
    claim_after = clock_timestamp(), epoch = d.epoch + 1, attempts = 0, retries = 0,
    update_time = now()
WHERE d.id = $1
RETURNING DOCUMENT
""")
_QUEUE_AGAIN = with_columns("""
UPDATE document d
SET state = 'PENDING', chunks_done = 0, chunks_total = 0, error = NULL,
    claim_after = clock_timestamp(), epoch = d.epoch + 1, attempts = 0, retries = 0,
    update_time = now()
WHERE d.id = $1
RETURNING DOCUMENT
""")
_COUNT_IN = "UPDATE knowledge_base SET document_count = document_count + 1 WHERE id = $1"
_COUNT_OUT = """
UPDATE knowledge_base SET document_count = document_count - 1, chunk_count = chunk_count - $2
WHERE id = $1
RETURNING now()
"""
_DELETE = "DELETE FROM document WHERE id = $1 RETURNING content_id"
_DELETE_CHUNKS = """
WITH gone AS (DELETE FROM chunk_table WHERE document_id = $1 RETURNING 1)
SELECT count(*) FROM gone
"""


class PostgresDocuments:
    """`DocumentStore` over PostgreSQL; the methods are explained there."""

    def __init__(self, pool: Pool, tables: ChunkTables) -> None:
        self._pool = pool
        self._tables = tables

    async def put_document(
        self, upload: Upload, *, ids: FreshIds, viewer: Identity, request: AcceptedRequest | None
    ) -> Document | None:
        try:
            return await self._put(upload, ids, viewer, request)
        except asyncpg.UniqueViolationError:  # the same request, at the same time
            return await self._put(upload, ids, viewer, request)

    async def get_document(self, document_id: DocumentId, *, viewer: Identity) -> Document | None:
        async with connection(self._pool) as lent:
            return await _get(lent, document_id, viewer)

    async def base_of(self, document_id: DocumentId, *, viewer: Identity) -> KnowledgeBase | None:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_BASE_OF, *seen_by(viewer), document_id)
            return None if row is None else to_base(row)

    async def list_documents(
        self, base_id: KnowledgeBaseId, *, viewer: Identity, page: Page
    ) -> list[Document]:
        after = page.after[0] if page.after else FIRST_ID
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_LIST, *seen_by(viewer), base_id, after, page.size)
            return [to_document(row) for row in rows]

    async def delete_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        patience = _CONTENT_SECONDS + self._pool.timeouts.answer_margin
        async with transaction(self._pool, statement_timeout=_CONTENT_SECONDS) as lent:
            base = await lent.fetchrow(_LOCK_BASE_OF, *changed_by(viewer), document_id)
            content_id = base and await lent.fetchval(_DELETE, document_id)
            if base is None or content_id is None:
                return None
            await lent.execute(_DELETE_CONTENT, content_id, timeout=patience)
            table = await self._tables.name(lent, to_space(base))
            delete_chunks = of_table(_DELETE_CHUNKS, table)
            chunks = await lent.fetchval(delete_chunks, document_id, timeout=patience)
            return DeletionReceipt(1, chunks, await lent.fetchval(_COUNT_OUT, base["id"], chunks))

    async def reingest_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> Document | None:
        async with transaction(self._pool) as lent:
            if await lent.fetchrow(_LOCK_BASE_OF, *changed_by(viewer), document_id) is None:
                return None
            row = await lent.fetchrow(_QUEUE_AGAIN, document_id)
            return None if row is None else to_document(row)

    async def _put(
        self, upload: Upload, ids: FreshIds, viewer: Identity, request: AcceptedRequest | None
    ) -> Document | None:
        async with transaction(self._pool, statement_timeout=_CONTENT_SECONDS) as lent:
            if request is not None:
                made = await find_request(lent, request, viewer=viewer)
                if made is not None:
                    return await _made_before(lent, DocumentId(made), viewer)
            base_id = upload.knowledge_base_id
            if not await lent.fetchval(_KEEP_BASE, *changed_by(viewer), base_id):
                return None
            document = await self._stored(lent, upload, ids)
            if request is not None:
                await record_request(lent, request, document.id, viewer=viewer)
            return document

    async def _stored(self, lent: PooledConnection, upload: Upload, ids: FreshIds) -> Document:
        unlocked = await _named(lent, upload)
        content_is_in = unlocked is None or not upload.repeats(to_document(unlocked))
        if content_is_in:
            await self._insert_content(lent, upload, ids.content_id)
        await lent.execute(_LOCK_BASE, upload.knowledge_base_id)
        present = await _named(lent, upload)
        if present is not None and upload.repeats(to_document(present)):
            if content_is_in:
                await lent.execute(_DELETE_CONTENT, ids.content_id)
            return await _repeated(lent, to_document(present))
        if not content_is_in:
            await self._insert_content(lent, upload, ids.content_id)
        if present is None:
            return await _inserted(lent, upload, ids)
        return await _replaced(lent, upload, present, ids.content_id)

    async def _insert_content(
        self, lent: PooledConnection, upload: Upload, content_id: ContentId
    ) -> None:
        patience = _CONTENT_SECONDS + self._pool.timeouts.answer_margin
        await lent.execute(_INSERT_CONTENT, content_id, upload.content, timeout=patience)


async def _get(
    lent: PooledConnection, document_id: DocumentId, viewer: Identity
) -> Document | None:
    row = await lent.fetchrow(_GET, *seen_by(viewer), document_id)
    return None if row is None else to_document(row)


async def _made_before(
    lent: PooledConnection, document_id: DocumentId, viewer: Identity
) -> Document:
    document = await _get(lent, document_id, viewer)
    if document is None:
        raise document_not_found(document_id)
    return document


async def _named(lent: PooledConnection, upload: Upload) -> asyncpg.Record | None:
    return await lent.fetchrow(_NAMED, upload.knowledge_base_id, upload.display_name)


async def _inserted(lent: PooledConnection, upload: Upload, ids: FreshIds) -> Document:
    rows = await lent.fetch(
        _INSERT,
        ids.document_id,
        upload.knowledge_base_id,
        upload.display_name,
        upload.media_type,
        metadata_json(upload.metadata),
        ids.content_id,
        upload.content_hash,
        len(upload.content),
    )
    await lent.execute(_COUNT_IN, upload.knowledge_base_id)
    return to_document(rows[0])


async def _replaced(
    lent: PooledConnection, upload: Upload, present: asyncpg.Record, content_id: ContentId
) -> Document:
    rows = await lent.fetch(
        _NEW_VERSION,
        present["id"],
        upload.media_type,
        metadata_json(upload.metadata),
        content_id,
        upload.content_hash,
        len(upload.content),
    )
    await lent.execute(_DELETE_CONTENT, present["content_id"])
    return to_document(rows[0])


async def _repeated(lent: PooledConnection, present: Document) -> Document:
    if present.state is not DocumentState.FAILED:
        return present
    rows = await lent.fetch(_QUEUE_AGAIN, present.id)
    return to_document(rows[0])
