"""What is done with a claimed document: read, cut, embed. The worker writes the result."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.common.identity import Identity
from services.common.ids import NewId
from services.knowledge.domain.embedding import Embedded, EmbeddingModel, TextDigest
from services.knowledge.domain.errors import (
    EmbeddingModelMismatchError,
    UnknownEmbeddingModelError,
)
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest
from services.knowledge.domain.ingest.embed import EmbedTask, PieceEmbedder, Progress
from services.knowledge.domain.ingest.failures import TooManyChunksError
from services.knowledge.domain.ingest.job import IngestedDocument, IngestJob, NewChunk
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.policy import ChunkPolicy
from services.knowledge.domain.models import ChunkId, EmbeddingSpace
from services.knowledge.domain.ports import Cutter, Embedder, IngestQueue

MAX_RECUTS = 3
"""How often a document is cut finer because the model did not see the end of a piece."""

MIN_TOKENS = 16
"""No budget is made smaller than this."""

Vectors = Mapping[TextDigest, Embedded]


@dataclass(frozen=True, slots=True)
class IngestTools:
    """What ingestion works with.

    Attributes:
        queue: holds the uploads and what is searchable of them.
        cutter: cuts documents.
        embedder: knows the models.
        pieces: embeds pieces.
        new_id: makes the ids of chunks.
        max_chunks: how many pieces a document may make.
    """

    queue: IngestQueue
    cutter: Cutter
    embedder: Embedder
    pieces: PieceEmbedder
    new_id: NewId
    max_chunks: int


class Ingestion:
    """Turns claimed documents into chunks with vectors."""

    def __init__(self, tools: IngestTools) -> None:
        self._tools = tools

    async def run(self, job: IngestJob, progress: Progress) -> IngestedDocument:
        """Everything of the document that becomes searchable.

        A text that is embedded already, with the same weights, keeps its vector. Where the model
        saw only the beginning of a piece, the document is cut finer, up to three times.

        Raises:
            ServiceError: the document cannot be ingested, or the embedding service is away.
            CutterTimeoutError: it took too long to cut.
            CutterDiedError: the cutter died while cutting it.
            LeaseLostError: somebody else has the document by now.
        """
        model = await self._model(job.space, job.owner)
        content = await self._tools.queue.content(job)
        known = await self._known(job, model)
        request = CutRequest(
            content,
            job.display_name,
            job.media_type,
            fitted(job.chunking, model.max_input_tokens),
            job.embed_field,
        )
        task = EmbedTask(model, job.owner, progress)
        cut, vectors = await self._cut_and_embed(request, task, known)
        for _ in range(MAX_RECUTS):
            finer = halved(request.policy)
            if finer is None or not any(vectors[digest].truncated for digest in cut.digests):
                break
            request = replace(request, policy=finer)
            cut, vectors = await self._cut_and_embed(request, task, vectors)
        # In a thread, because there may be a hundred thousand of them.
        chunks = await asyncio.to_thread(self._chunks, cut, vectors)
        return IngestedDocument(cut.title, cut.metadata, model.digest, chunks)

    async def _model(self, space: EmbeddingSpace, owner: Identity) -> EmbeddingModel:
        models = await self._tools.embedder.models(identity=owner)
        for model in models:
            if model.space.model == space.model:
                if model.space != space:
                    raise EmbeddingModelMismatchError.of_dimensions(space, model.space.dimensions)
                return model
        raise UnknownEmbeddingModelError(
            model=space.model, known=[model.space.model for model in models]
        )

    async def _known(self, job: IngestJob, model: EmbeddingModel) -> Vectors:
        if not model.digest or model.digest != job.model_digest:
            return {}
        return await self._tools.queue.embedded_before(job)

    async def _cut_and_embed(
        self, request: CutRequest, task: EmbedTask, known: Vectors
    ) -> tuple[CutDocument, Vectors]:
        cut = await self._tools.cutter.cut(request)
        if len(cut.pieces) > self._tools.max_chunks:
            raise TooManyChunksError(count=len(cut.pieces), max_chunks=self._tools.max_chunks)
        return cut, await self._tools.pieces.embed(cut, task, known=known)

    def _chunks(self, cut: CutDocument, vectors: Vectors) -> tuple[NewChunk, ...]:
        pairs = zip(cut.pieces, cut.digests, strict=True)
        return tuple(self._chunk(piece, vectors[digest], digest) for piece, digest in pairs)

    def _chunk(self, piece: Piece, embedded: Embedded, digest: TextDigest) -> NewChunk:
        if not embedded.token_count:
            embedded = replace(embedded, token_count=piece.token_count)
        return NewChunk(ChunkId(self._tools.new_id()), piece, embedded, digest)


def fitted(policy: ChunkPolicy, max_input_tokens: int) -> ChunkPolicy:
    """The policy within what a model reads of one text."""
    if max_input_tokens <= 0 or policy.max_tokens <= max_input_tokens:
        return policy
    overlap = min(policy.overlap_tokens, (max_input_tokens - 1) // 2)
    return ChunkPolicy(max_input_tokens, overlap)


def halved(policy: ChunkPolicy) -> ChunkPolicy | None:
    """The policy with half the budget; None where that would be too small."""
    if policy.max_tokens // 2 < MIN_TOKENS:
        return None
    return fitted(policy, policy.max_tokens // 2)
