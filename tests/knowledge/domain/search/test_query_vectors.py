"""Questions are embedded once, and no vector of another length gets through."""

from dataclasses import replace

import pytest

from services.common.errors import InvalidArgumentError
from services.knowledge.domain.errors import (
    EmbeddingModelMismatchError,
    EmbeddingUnavailableError,
    UnknownEmbeddingModelError,
)
from services.knowledge.domain.models import EmbeddingSpace
from services.knowledge.domain.search.query_vectors import QueryVectors
from tests.contracts.knowledge_stores import ALICE, BOB
from tests.knowledge.doubles import SPACE, MemoryEmbedder

OTHER = EmbeddingSpace("other", 8)


class TestVector:
    async def test_a_question_is_embedded_once(self) -> None:
        embedder = MemoryEmbedder()
        queries = QueryVectors(embedder, capacity=2)

        first = await queries.vector("one", space=SPACE, identity=ALICE)
        again = await queries.vector("one", space=SPACE, identity=BOB)

        assert first == again
        assert embedder.calls == [["one"]]

    async def test_models_are_kept_apart(self) -> None:
        embedder = MemoryEmbedder(SPACE, OTHER)
        queries = QueryVectors(embedder, capacity=2)

        await queries.vector("one", space=SPACE, identity=ALICE)
        await queries.vector("one", space=OTHER, identity=ALICE)

        assert len(embedder.calls) == 2

    async def test_the_question_asked_longest_ago_is_forgotten(self) -> None:
        embedder = MemoryEmbedder()
        queries = QueryVectors(embedder, capacity=2)
        for text in ("one", "two", "one", "three", "one", "two"):
            await queries.vector(text, space=SPACE, identity=ALICE)

        assert embedder.calls == [["one"], ["two"], ["three"], ["two"]]

    async def test_nothing_is_kept_without_room(self) -> None:
        embedder = MemoryEmbedder()
        queries = QueryVectors(embedder, capacity=0)
        for _ in range(2):
            await queries.vector("one", space=SPACE, identity=ALICE)

        assert len(embedder.calls) == 2

    async def test_a_vector_of_another_length_is_refused(self) -> None:
        queries = QueryVectors(MemoryEmbedder(replace(SPACE, dimensions=9)), capacity=2)

        with pytest.raises(EmbeddingModelMismatchError) as caught:
            await queries.vector("one", space=SPACE, identity=ALICE)

        assert caught.value.metadata == {"model": "tiny", "expected": "8", "received": "9"}

    async def test_failures_are_told_and_not_kept(self) -> None:
        embedder = MemoryEmbedder()
        queries = QueryVectors(embedder, capacity=2)
        embedder.unavailable = True
        with pytest.raises(EmbeddingUnavailableError):
            await queries.vector("one", space=SPACE, identity=ALICE)
        embedder.unavailable, embedder.poison = False, "one"
        with pytest.raises(InvalidArgumentError):
            await queries.vector("one", space=SPACE, identity=ALICE)
        embedder.poison = ""
        with pytest.raises(UnknownEmbeddingModelError):
            await queries.vector("one", space=OTHER, identity=ALICE)

        assert await queries.vector("one", space=SPACE, identity=ALICE)
