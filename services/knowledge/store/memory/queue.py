"""The queue of documents to ingest, in memory."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from services.common.identity import Identity
from services.knowledge.domain.embedding import Embedded, TextDigest
from services.knowledge.domain.ingest.job import (
    IngestedDocument,
    IngestJob,
    LeaseLostError,
    NewChunk,
    PutBack,
)
from services.knowledge.domain.models import Chunk, DocumentError, DocumentState
from services.knowledge.store.memory.state import MemoryState, StoredChunk, StoredDocument


class MemoryIngestQueue:
    """`IngestQueue` in memory; the methods are explained there."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def claim(self, *, lease: float) -> IngestJob | None:
        now = self._state.clock()
        waiting = [each for each in self._state.documents.values() if each.claim_after]
        ready = [each for each in waiting if each.claim_after and each.claim_after <= now]
        if not ready:
            return None
        stored = min(ready, key=lambda each: each.claim_after or now)
        stored.claim_after = now + timedelta(seconds=lease)
        stored.epoch += 1
        stored.attempts += 1
        self._move(stored, DocumentState.INGESTING)
        return self._job(stored)

    async def renew(self, job: IngestJob, *, lease: float) -> None:
        self._held(job).claim_after = self._state.clock() + timedelta(seconds=lease)

    async def content(self, job: IngestJob) -> bytes:
        return self._held(job).content

    async def embedded_before(self, job: IngestJob) -> Mapping[TextDigest, Embedded]:
        return {each.text_digest: each.embedded for each in self._held(job).chunks}

    async def record_progress(self, job: IngestJob, *, done: int, total: int) -> None:
        stored = self._held(job)
        stored.document = replace(stored.document, chunks_done=done, chunks_total=total)

    async def finish(self, job: IngestJob, result: IngestedDocument) -> None:
        stored = self._held(job)
        stored.generation = job.epoch
        stored.model_digest = result.model_digest
        stored.front_matter = result.metadata
        stored.chunks = tuple(
            StoredChunk(_chunk(job, new, ordinal), new.embedded, new.text_digest)
            for ordinal, new in enumerate(result.chunks)
        )
        stored.claim_after = None
        stored.attempts = stored.retries = 0
        stored.document = replace(
            stored.document,
            searchable_version=stored.document.version,
            title=result.title or stored.document.display_name,
            metadata={**result.metadata, **stored.uploaded_metadata},
            chunks_done=len(result.chunks),
            chunks_total=len(result.chunks),
            error=None,
        )
        self._move(stored, DocumentState.READY)

    async def fail(self, job: IngestJob, error: DocumentError) -> None:
        stored = self._held(job)
        stored.claim_after = None
        stored.document = replace(stored.document, error=error)
        self._move(stored, DocumentState.FAILED)

    async def put_back(
        self, job: IngestJob, why: PutBack, *, delay: float, error: DocumentError | None = None
    ) -> None:
        stored = self._held(job)
        stored.claim_after = self._state.clock() + timedelta(seconds=delay)
        stored.attempts -= 0 if why is PutBack.CRASHED else 1
        stored.retries += 1 if why is PutBack.OUTAGE else 0
        stored.document = replace(
            stored.document, chunks_done=0, chunks_total=0, error=error or stored.document.error
        )
        self._move(stored, DocumentState.PENDING)

    def _held(self, job: IngestJob) -> StoredDocument:
        stored = self._state.documents.get(job.document_id)
        if stored is None or stored.epoch != job.epoch:
            raise LeaseLostError
        if stored.document.state is not DocumentState.INGESTING:
            raise LeaseLostError
        return stored

    def _move(self, stored: StoredDocument, state: DocumentState) -> None:
        stored.document = replace(stored.document, state=state, update_time=self._state.clock())

    def _job(self, stored: StoredDocument) -> IngestJob:
        base, document = self._state.base_of(stored), stored.document
        return IngestJob(
            document_id=document.id,
            knowledge_base_id=base.id,
            content_id=stored.content_id,
            display_name=document.display_name,
            media_type=document.media_type,
            space=base.space,
            embed_field=base.embed_field,
            chunking=base.settings.chunking,
            owner=Identity(base.tenant, base.owner_user_id),
            epoch=stored.epoch,
            attempts=stored.attempts,
            retries=stored.retries,
            generation=stored.generation,
            model_digest=stored.model_digest,
        )


def _chunk(job: IngestJob, new: NewChunk, ordinal: int) -> Chunk:
    piece = new.piece
    return Chunk(
        id=new.id,
        knowledge_base_id=job.knowledge_base_id,
        document_id=job.document_id,
        heading_path=piece.heading_path,
        text=piece.text,
        start_line=piece.start_line,
        end_line=piece.end_line,
        ordinal=ordinal,
        token_count=new.embedded.token_count,
        truncated=new.embedded.truncated,
    )
