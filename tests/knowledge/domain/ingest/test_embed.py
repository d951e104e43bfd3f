"""Pieces get their vectors in as few calls as there can be."""

from dataclasses import replace

import pytest

from services.common.identity import Identity
from services.knowledge.domain.embedding import Embedded, EmbeddingModel, vector
from services.knowledge.domain.errors import (
    EmbeddingModelMismatchError,
    EmbeddingUnavailableError,
)
from services.knowledge.domain.ingest.batching import BatchLimits
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest, cut
from services.knowledge.domain.ingest.embed import PATIENT_RETRIES, EmbedTask, PieceEmbedder
from services.knowledge.domain.ingest.failures import ChunkNotEmbeddedError
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.models import EmbeddingSpace
from tests.knowledge.doubles import SPACE, MemoryEmbedder

ALICE = Identity("acme", "alice")


def a_document(*texts: str) -> CutDocument:
    """A document with a section for each text."""
    content = "\n\n".join(f"# H\n\n{text}" for text in texts).encode()
    return cut(CutRequest(content, "a.md", "", ChunkPolicy(), EmbedField.TITLE_AND_CONTENT))


class Bench:
    """An embedder of pieces, and what it tells of its progress."""

    def __init__(self, *, max_batch_size: int = 2, space: EmbeddingSpace = SPACE) -> None:
        self.embedder = MemoryEmbedder()
        self.pieces = PieceEmbedder(self.embedder, BatchLimits(3, 1000), pause=self.pause)
        self.paused: list[float] = []
        self.outage = 0
        self.told: list[tuple[int, int]] = []
        model = EmbeddingModel(space, 512, max_batch_size, True, "weights-1")
        self.task = EmbedTask(model, ALICE, self.tell)

    async def pause(self, seconds: float) -> None:
        """Note the pause; the outage ends after some of them."""
        self.paused.append(seconds)
        self.embedder.unavailable = len(self.paused) < self.outage

    async def tell(self, done: int, total: int) -> None:
        """Note the progress."""
        self.told.append((done, total))


class TestEmbed:
    async def test_asks_in_batches_and_tells_of_each(self) -> None:
        bench, document = Bench(), a_document("a", "b", "c", "d", "e")

        vectors = await bench.pieces.embed(document, bench.task, known={})

        assert set(document.digests) == set(vectors)
        assert [len(call) for call in bench.embedder.calls] == [2, 2, 1]
        assert bench.told == [(0, 5), (2, 5), (4, 5), (5, 5)]

    async def test_the_models_own_bound_does_not_widen_ours(self) -> None:
        bench = Bench(max_batch_size=100)

        await bench.pieces.embed(a_document("a", "b", "c", "d"), bench.task, known={})

        assert [len(call) for call in bench.embedder.calls] == [3, 1]

    async def test_what_is_known_is_not_asked_for(self) -> None:
        bench, document = Bench(), a_document("a", "b", "a")
        known = {document.digests[0]: Embedded(vector([1.0] * 8), 1, truncated=False)}

        vectors = await bench.pieces.embed(document, bench.task, known=known)

        assert bench.embedder.calls == [["H\nb"]]
        assert known[document.digests[0]] == vectors[document.digests[2]]
        assert bench.told == [(2, 3), (3, 3)]

    async def test_nothing_asks_for_nothing(self) -> None:
        bench = Bench()

        assert await bench.pieces.embed(a_document(), bench.task, known={}) == {}
        assert bench.embedder.calls == []
        assert bench.told == [(0, 0)]


class TestFailures:
    async def test_the_pieces_at_fault_are_named(self) -> None:
        bench = Bench()
        bench.embedder.poison = "pill"

        with pytest.raises(ChunkNotEmbeddedError) as caught:
            await bench.pieces.embed(a_document("a", "b", "c", "pill"), bench.task, known={})

        assert [(each.start_line, each.end_line) for each in caught.value.chunks] == [(15, 15)]

    async def test_where_none_is_named_the_whole_batch_is(self) -> None:
        bench = Bench()
        bench.embedder.poison = "pill"
        bench.embedder.names_faults = False

        with pytest.raises(ChunkNotEmbeddedError) as caught:
            await bench.pieces.embed(a_document("a", "pill"), bench.task, known={})

        assert len(caught.value.chunks) == 2

    async def test_vectors_of_another_length_are_refused(self) -> None:
        bench = Bench(space=EmbeddingSpace("tiny", 9))

        with pytest.raises(EmbeddingModelMismatchError):
            await bench.pieces.embed(a_document("a"), bench.task, known={})

    async def test_weights_that_change_on_the_way_are_not_mixed(self) -> None:
        bench = Bench()
        bench.embedder.digest = "weights-2"

        with pytest.raises(EmbeddingUnavailableError, match="replaced"):
            await bench.pieces.embed(a_document("a"), bench.task, known={})


class TestOutages:
    async def test_a_short_one_costs_no_vector(self) -> None:
        bench, document = Bench(), a_document("a", "b", "c", "d")
        bench.outage = 3

        async def fail_after_the_first(done: int, total: int) -> None:
            bench.embedder.unavailable = done == 2

        task = replace(bench.task, progress=fail_after_the_first)
        vectors = await bench.pieces.embed(document, task, known={})

        assert set(document.digests) == set(vectors)
        assert [len(call) for call in bench.embedder.calls] == [2, 2]
        assert sorted(bench.paused) == bench.paused
        assert len(bench.paused) == 3

    async def test_a_longer_one_gives_the_document_back(self) -> None:
        bench = Bench()
        bench.outage = 100
        bench.embedder.unavailable = True

        with pytest.raises(EmbeddingUnavailableError):
            await bench.pieces.embed(a_document("a"), bench.task, known={})

        assert len(bench.paused) == PATIENT_RETRIES
        assert sum(bench.paused) <= 15
