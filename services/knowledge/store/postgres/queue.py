"""The queue of documents to ingest, in PostgreSQL.

Times are the database's. A claim raises the epoch, and every later write names the epoch it was
made under: the write of a worker that lost its claim meanwhile meets no row. Chunks carry the epoch
they were written under as their generation, so that two workers never write the same rows.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Mapping

import asyncpg
import numpy as np

from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.knowledge.domain.embedding import Embedded, TextDigest
from services.knowledge.domain.ingest.job import (
    IngestedDocument,
    IngestJob,
    LeaseLostError,
    PutBack,
)
from services.knowledge.domain.ingest.policy import EmbedField
from services.knowledge.domain.metadata import metadata_json
from services.knowledge.domain.models import (
    ContentId,
    DocumentError,
    DocumentId,
    KnowledgeBaseId,
)
from services.knowledge.store.postgres.rows import error_to_json, to_policy, to_space
from services.knowledge.store.postgres.tables import ChunkTables, of_table

_CONTENT_SECONDS = 60.0
_SWITCH_SECONDS = 60.0
_ROWS_A_TURN = 200
_COLUMNS = (
    "id",
    "knowledge_base_id",
    "document_id",
    "generation",
    "ordinal",
    "start_line",
    "end_line",
    "token_count",
    "truncated",
    "text_digest",
    "heading_path",
    "text",
    "embedding",
)

_CLAIM = """
UPDATE document d
SET state = 'INGESTING', epoch = d.epoch + 1, attempts = d.attempts + 1,
    claim_after = clock_timestamp() + make_interval(secs => $1), update_time = clock_timestamp()
FROM knowledge_base b
WHERE d.id = (
    SELECT id FROM document
    WHERE claim_after <= clock_timestamp()
    ORDER BY claim_after
    FOR UPDATE SKIP LOCKED LIMIT 1
) AND b.id = d.knowledge_base_id
RETURNING d.id, d.knowledge_base_id, d.content_id, d.display_name, d.media_type, d.epoch,
    d.attempts, d.retries, d.generation, d.model_digest, b.tenant, b.owner_user_id,
    b.embedding_model, b.embedding_dimensions, b.embed_field, b.max_tokens, b.overlap_tokens
"""
_CONTENT = "SELECT content FROM document_content WHERE id = $1"
_HELD = "SELECT true FROM document WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'"
_RENEW = """
UPDATE document SET claim_after = clock_timestamp() + make_interval(secs => $3)
WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'
RETURNING true
"""
_PROGRESS = """
UPDATE document SET chunks_done = $3, chunks_total = $4
WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'
RETURNING true
"""
_FAIL = """
UPDATE document
SET state = 'FAILED', error = $3, claim_after = NULL, update_time = clock_timestamp()
WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'
RETURNING true
"""
_PUT_BACK = """
UPDATE document
SET state = 'PENDING', claim_after = clock_timestamp() + make_interval(secs => $3),
    attempts = attempts - $4, retries = retries + $5, error = coalesce($6, error),
    chunks_done = 0, chunks_total = 0, update_time = clock_timestamp()
WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'
RETURNING true
"""
_VECTORS = """
SELECT text_digest, embedding, token_count, truncated FROM chunk_table
WHERE document_id = $1 AND generation = $2
"""
_LOCK_BASE = "SELECT true FROM knowledge_base WHERE id = $1 FOR NO KEY UPDATE"
_COUNTED = "SELECT chunk_count FROM document WHERE id = $1 FOR UPDATE"
_SWITCH = """
UPDATE document
SET state = 'READY', searchable_version = version, generation = epoch, model_digest = $3,
    title = $4, front_matter = $5, chunk_count = $6, chunks_done = $6, chunks_total = $6,
    error = NULL, claim_after = NULL, attempts = 0, retries = 0, update_time = clock_timestamp()
WHERE id = $1 AND epoch = $2 AND state = 'INGESTING'
RETURNING true
"""
_DELETE_OLD = "DELETE FROM chunk_table WHERE document_id = $1 AND generation <> $2"
_COUNT = "UPDATE knowledge_base SET chunk_count = chunk_count + $2 WHERE id = $1"


class PostgresIngestQueue:
    """`IngestQueue` over PostgreSQL; the methods are explained there."""

    def __init__(self, pool: Pool, tables: ChunkTables) -> None:
        self._pool = pool
        self._tables = tables

    async def claim(self, *, lease: float) -> IngestJob | None:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_CLAIM, lease)
            return None if row is None else _to_job(row)

    async def renew(self, job: IngestJob, *, lease: float) -> None:
        await self._write(job, _RENEW, lease)

    async def content(self, job: IngestJob) -> bytes:
        patience = _CONTENT_SECONDS + self._pool.timeouts.answer_margin
        async with transaction(self._pool, statement_timeout=_CONTENT_SECONDS) as lent:
            content: bytes | None = await lent.fetchval(_CONTENT, job.content_id, timeout=patience)
        if content is None:
            raise LeaseLostError
        return content

    async def embedded_before(self, job: IngestJob) -> Mapping[TextDigest, Embedded]:
        async with connection(self._pool) as lent:
            statement = of_table(_VECTORS, await self._tables.name(lent, job.space))
            rows = await lent.fetch(statement, job.document_id, job.generation)
            return {row["text_digest"]: _to_embedded(row) for row in rows}

    async def record_progress(self, job: IngestJob, *, done: int, total: int) -> None:
        await self._write(job, _PROGRESS, done, total)

    async def finish(self, job: IngestJob, result: IngestedDocument) -> None:
        generation, count = job.epoch, len(result.chunks)
        async with transaction(self._pool, statement_timeout=_SWITCH_SECONDS) as lent:
            _expect(await lent.fetchval(_HELD, job.document_id, job.epoch))
            table = await self._tables.name(lent, job.space)
            await self._copy(lent, table, _records(job, result, generation))
            _expect(await lent.fetchval(_LOCK_BASE, job.knowledge_base_id))
            before = await lent.fetchval(_COUNTED, job.document_id)
            switched = await lent.fetchval(
                _SWITCH,
                job.document_id,
                job.epoch,
                result.model_digest,
                result.title,
                metadata_json(result.metadata),
                count,
            )
            _expect(switched)
            delete_old = of_table(_DELETE_OLD, table)
            await lent.execute(delete_old, job.document_id, generation, timeout=_SWITCH_SECONDS)
            await lent.execute(_COUNT, job.knowledge_base_id, count - before)

    async def fail(self, job: IngestJob, error: DocumentError) -> None:
        await self._write(job, _FAIL, error_to_json(error))

    async def put_back(
        self, job: IngestJob, why: PutBack, *, delay: float, error: DocumentError | None = None
    ) -> None:
        attempts = 0 if why is PutBack.CRASHED else 1
        retries = 1 if why is PutBack.OUTAGE else 0
        await self._write(job, _PUT_BACK, delay, attempts, retries, error_to_json(error))

    async def _write(self, job: IngestJob, statement: str, *values: object) -> None:
        async with connection(self._pool) as lent:
            _expect(await lent.fetchval(statement, job.document_id, job.epoch, *values))

    async def _copy(
        self, lent: PooledConnection, table: str, records: AsyncIterator[tuple[object, ...]]
    ) -> None:
        await lent.copy_records_to_table(
            table,
            schema_name=self._pool.schema,
            columns=_COLUMNS,
            records=records,
            timeout=_SWITCH_SECONDS,
        )


def _expect(row: object) -> None:
    if row is None:
        raise LeaseLostError


def _to_job(row: asyncpg.Record) -> IngestJob:
    return IngestJob(
        document_id=DocumentId(str(row["id"])),
        knowledge_base_id=KnowledgeBaseId(str(row["knowledge_base_id"])),
        content_id=ContentId(str(row["content_id"])),
        display_name=row["display_name"],
        media_type=row["media_type"],
        space=to_space(row),
        embed_field=EmbedField(row["embed_field"]),
        chunking=to_policy(row),
        owner=Identity(row["tenant"], row["owner_user_id"]),
        epoch=row["epoch"],
        attempts=row["attempts"],
        retries=row["retries"],
        generation=row["generation"],
        model_digest=row["model_digest"],
    )


def _to_embedded(row: asyncpg.Record) -> Embedded:
    values = array("f", row["embedding"].to_numpy().astype(np.float32).tobytes())
    return Embedded(values, row["token_count"], row["truncated"])


async def _records(
    job: IngestJob, result: IngestedDocument, generation: int
) -> AsyncIterator[tuple[object, ...]]:
    for ordinal, chunk in enumerate(result.chunks):
        if ordinal % _ROWS_A_TURN == 0:
            await asyncio.sleep(0)  # encoding a large document would keep others waiting
        piece = chunk.piece
        yield (
            chunk.id,
            job.knowledge_base_id,
            job.document_id,
            generation,
            ordinal,
            piece.start_line,
            piece.end_line,
            chunk.embedded.token_count,
            chunk.embedded.truncated,
            chunk.text_digest,
            piece.heading_path,
            piece.text,
            np.frombuffer(chunk.embedded.vector, dtype=np.float32),
        )
