"""Pieces to vectors: one call for each batch of texts, none for a text whose vector is known."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from services.common.identity import Identity
from services.knowledge.domain.embedding import (
    Embedded,
    EmbeddedBatch,
    EmbeddingModel,
    NotEmbeddableError,
    Purpose,
    TextDigest,
)
from services.knowledge.domain.errors import (
    EmbeddingModelMismatchError,
    EmbeddingUnavailableError,
)
from services.knowledge.domain.ingest.batching import BatchLimits, batches
from services.knowledge.domain.ingest.cutting import CutDocument
from services.knowledge.domain.ingest.failures import ChunkNotEmbeddedError
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.retry import retry_delay
from services.knowledge.domain.ports import Embedder

Progress = Callable[[int, int], Awaitable[None]]
"""Is told how many pieces are done, and how many there are."""

Pause = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

PATIENT_RETRIES = 4
"""How often a batch is retried before the whole document is put off."""


@dataclass(frozen=True, slots=True)
class EmbedTask:
    """What all batches of a document have in common.

    Attributes:
        model: what to embed with.
        identity: for whom.
        progress: is told after every batch.
    """

    model: EmbeddingModel
    identity: Identity
    progress: Progress


class PieceEmbedder:
    """Embeds the pieces of documents in batches.

    A batch that finds the service away is retried a few times within seconds: giving up the
    document would lose the vectors of the batches before it.
    """

    def __init__(
        self, embedder: Embedder, limits: BatchLimits, *, pause: Pause = asyncio.sleep
    ) -> None:
        """Embed within `limits`, waiting between tries with `pause`."""
        self._embedder = embedder
        self._limits = limits
        self._pause = pause

    async def embed(
        self, cut: CutDocument, task: EmbedTask, *, known: Mapping[TextDigest, Embedded]
    ) -> dict[TextDigest, Embedded]:
        """The vectors of all pieces, by the digest of what is embedded of them.

        Args:
            cut: the document in pieces.
            task: how to embed them.
            known: vectors of the same model that need not be made again.

        Raises:
            ChunkNotEmbeddedError: the model fails on some pieces.
            EmbeddingModelMismatchError: the model's vectors are of another length than before.
            EmbeddingUnavailableError: the embedding service is away, or changed its weights.
        """
        vectors = {digest: known[digest] for digest in cut.digests if digest in known}
        todo = _missing(cut, vectors)
        total, reused = len(cut.pieces), len(cut.pieces) - len(todo)
        await task.progress(reused, total)
        costs = [piece.token_count for _, piece in todo]
        for batch in batches(costs, self._within(task.model)):
            part = todo[batch.start : batch.stop]
            embedded = await self._patiently([piece for _, piece in part], task)
            vectors |= zip((digest for digest, _ in part), embedded, strict=True)
            await task.progress(reused + batch.stop, total)
        return vectors

    def _within(self, model: EmbeddingModel) -> BatchLimits:
        return BatchLimits(min(self._limits.texts, model.max_batch_size), self._limits.tokens)

    async def _patiently(self, pieces: Sequence[Piece], task: EmbedTask) -> tuple[Embedded, ...]:
        for failures in range(PATIENT_RETRIES):
            try:
                return await self._batch(pieces, task)
            except EmbeddingUnavailableError:
                await self._pause(retry_delay(failures, spread=random.random()))  # noqa: S311
        return await self._batch(pieces, task)

    async def _batch(self, pieces: Sequence[Piece], task: EmbedTask) -> tuple[Embedded, ...]:
        try:
            batch = await self._embedder.embed(
                [piece.embed_text for piece in pieces],
                model=task.model.space.model,
                purpose=Purpose.DOCUMENT,
                identity=task.identity,
            )
        except NotEmbeddableError as error:
            at_fault = [pieces[i] for i in error.indexes if i < len(pieces)]
            raise ChunkNotEmbeddedError(at_fault or pieces) from error
        _require_same(batch, task.model)
        return batch.embedded


def _missing(
    cut: CutDocument, vectors: Mapping[TextDigest, Embedded]
) -> list[tuple[TextDigest, Piece]]:
    """A piece for each text that has no vector yet, however often the text occurs."""
    pairs = zip(cut.digests, cut.pieces, strict=True)
    return list({digest: piece for digest, piece in pairs if digest not in vectors}.items())


def _require_same(batch: EmbeddedBatch, model: EmbeddingModel) -> None:
    if batch.space.dimensions != model.space.dimensions:
        raise EmbeddingModelMismatchError.of_dimensions(model.space, batch.space.dimensions)
    if batch.digest != model.digest:
        raise EmbeddingUnavailableError(
            f"The embedding model {model.space.model!r} was replaced in the middle of a document."
        )
