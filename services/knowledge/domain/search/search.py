"""A question to some bases, from what was asked to what is answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.errors import InvalidArgumentError
from services.common.identity import Identity
from services.knowledge.domain.errors import EmbeddingModelMismatchError, base_not_found
from services.knowledge.domain.models import (
    Chunk,
    DocumentId,
    EmbeddingSpace,
    KnowledgeBase,
    KnowledgeBaseId,
)
from services.knowledge.domain.ports import BaseStore
from services.knowledge.domain.search.scope import Nearby, SearchScope
from services.knowledge.domain.search.vector import VectorLeg

DEFAULT_TOP_K = 5


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        base_ids: the bases to search.
        text: the question.
        top_k: how many hits at most.
        min_score: hits below it are dropped; None drops none.
        document_ids: only chunks of these documents; of all where empty.
    """

    base_ids: tuple[KnowledgeBaseId, ...]
    text: str
    top_k: int = DEFAULT_TOP_K
    min_score: float | None = None
    document_ids: tuple[DocumentId, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found.

    Attributes:
        chunk: the chunk.
        document_name: the display name of its document.
        score: orders the hits, highest first.
        vector_rank: its place in the vector leg, from 1.
        vector_score: its cosine, from -1 to 1.
    """

    chunk: Chunk
    document_name: str
    score: float
    vector_rank: int
    vector_score: float


class Search:
    """Answers questions to bases that the caller can see."""

    def __init__(self, bases: BaseStore, vectors: VectorLeg) -> None:
        self._bases = bases
        self._vectors = vectors

    async def ask(self, question: Question, *, identity: Identity) -> list[Hit]:
        """The best hits, best first.

        Raises:
            InvalidArgumentError: the question is blank.
            NotFoundError: a base is unknown to the caller.
            EmbeddingModelMismatchError: the bases differ in their embedding model, or its vectors
                have another length by now.
            EmbeddingUnavailableError: the embedding service is away.
        """
        if not question.text.strip():
            raise InvalidArgumentError.of_field("query", "must not be blank")
        bases = await self._visible(question.base_ids, identity)
        scope = SearchScope(common_space(bases), question.base_ids, question.document_ids)
        found = await self._vectors.find(
            question.text, scope=scope, limit=question.top_k, identity=identity
        )
        hits = [_to_hit(nearby, rank) for rank, nearby in enumerate(found, start=1)]
        return [
            hit for hit in hits if question.min_score is None or hit.score >= question.min_score
        ]

    async def _visible(
        self, base_ids: Sequence[KnowledgeBaseId], identity: Identity
    ) -> list[KnowledgeBase]:
        bases = {base.id: base for base in await self._bases.get_bases(base_ids, viewer=identity)}
        for base_id in base_ids:
            if base_id not in bases:
                raise base_not_found(base_id)
        return [bases[base_id] for base_id in base_ids]


def common_space(bases: Sequence[KnowledgeBase]) -> EmbeddingSpace:
    """The one space of all bases.

    Raises:
        EmbeddingModelMismatchError: there is more than one.
    """
    space = bases[0].space
    for base in bases[1:]:
        if base.space != space:
            raise EmbeddingModelMismatchError.between_bases(space, base.space)
    return space


def _to_hit(nearby: Nearby, rank: int) -> Hit:
    return Hit(
        chunk=nearby.chunk,
        document_name=nearby.document_name,
        score=nearby.cosine,
        vector_rank=rank,
        vector_score=nearby.cosine,
    )
