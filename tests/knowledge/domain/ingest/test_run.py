"""The way of one document, over the queue in memory."""

import pytest

from services.common.ids import new_id
from services.knowledge.domain.errors import UnknownEmbeddingModelError
from services.knowledge.domain.ingest.batching import BatchLimits
from services.knowledge.domain.ingest.embed import PieceEmbedder
from services.knowledge.domain.ingest.job import IngestedDocument, IngestJob
from services.knowledge.domain.ingest.policy import ChunkPolicy
from services.knowledge.domain.ingest.run import (
    MAX_RECUTS,
    Ingestion,
    IngestTools,
    fitted,
    halved,
)
from services.knowledge.domain.models import EmbeddingSpace
from tests.contracts.knowledge_stores import Stores, memory_stores
from tests.knowledge.doubles import SPACE, InlineCutter, MemoryEmbedder


class Bench:
    """An ingestion over stores in memory."""

    def __init__(self) -> None:
        self.stores: Stores = memory_stores()
        self.embedder = MemoryEmbedder()
        self.cutter = InlineCutter()
        self.ingestion = Ingestion(
            IngestTools(
                queue=self.stores.queue,
                cutter=self.cutter,
                embedder=self.embedder,
                pieces=PieceEmbedder(self.embedder, BatchLimits(8, 1000)),
                new_id=new_id,
                max_chunks=100,
            )
        )

    async def job(self, content: bytes, *, space: EmbeddingSpace = SPACE) -> IngestJob:
        """A document, claimed."""
        await self.stores.document(await self.stores.base(space=space), content=content)
        return await self.stores.claimed()

    async def run(self, content: bytes) -> IngestedDocument:
        """What comes of a document."""
        return await self.ingestion.run(await self.job(content), unheard)


async def unheard(done: int, total: int) -> None:
    """Progress that nobody listens to."""


class TestRun:
    async def test_brings_title_metadata_and_chunks(self) -> None:
        result = await Bench().run(b"---\nby: alice\n---\n\n# A\n\none two\n\n# B\n\nthree\n")

        assert (
            result.title,
            result.metadata,
            result.model_digest,
        ) == ("A", {"by": "alice"}, "weights-1")
        assert [chunk.piece.text for chunk in result.chunks] == ["one two", "three"]
        assert [chunk.embedded.token_count for chunk in result.chunks] == [3, 2]
        assert len({chunk.id for chunk in result.chunks}) == 2

    async def test_a_model_that_counts_no_tokens_leaves_the_estimate(self) -> None:
        bench = Bench()
        bench.embedder.counts_tokens = False

        (chunk,) = (await bench.run(b"# A\n\none two\n")).chunks

        assert chunk.piece.token_count == chunk.embedded.token_count > 0

    async def test_pieces_keep_within_what_the_model_reads(self) -> None:
        bench = Bench()
        bench.embedder.max_input_tokens = 20

        await bench.run(b"word " * 100)

        assert [ChunkPolicy(20, 8)] == [each.policy for each in bench.cutter.requests]

    async def test_a_missing_model_is_told_before_anything_is_cut(self) -> None:
        bench = Bench()
        job = await bench.job(b"text", space=EmbeddingSpace("gone", 8))

        with pytest.raises(UnknownEmbeddingModelError):
            await bench.ingestion.run(job, unheard)

        assert bench.cutter.requests == []

    async def test_is_cut_finer_a_few_times_at_most(self) -> None:
        bench = Bench()
        bench.embedder.max_chars = 1

        result = await bench.run(b"word " * 100)

        assert all(chunk.embedded.truncated for chunk in result.chunks)
        budgets = [request.policy.max_tokens for request in bench.cutter.requests]
        assert budgets == [64, 32, 16]
        assert len(budgets) <= MAX_RECUTS + 1


class TestFitted:
    @pytest.mark.parametrize(
        ("policy", "limit", "expected"),
        [
            (ChunkPolicy(100, 40), 512, ChunkPolicy(100, 40)),
            (ChunkPolicy(100, 40), 0, ChunkPolicy(100, 40)),
            (ChunkPolicy(100, 40), 50, ChunkPolicy(50, 24)),
            (ChunkPolicy(100, 10), 50, ChunkPolicy(50, 10)),
            (ChunkPolicy(100, 49), 1, ChunkPolicy(1, 0)),
        ],
    )
    def test_keeps_a_valid_policy(
        self, policy: ChunkPolicy, limit: int, expected: ChunkPolicy
    ) -> None:
        assert expected == fitted(policy, limit)


class TestHalved:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (ChunkPolicy(64, 20), ChunkPolicy(32, 15)),
            (ChunkPolicy(33, 0), ChunkPolicy(16, 0)),
            (ChunkPolicy(31, 0), None),
        ],
    )
    def test_stops_at_the_smallest_budget(
        self, policy: ChunkPolicy, expected: ChunkPolicy | None
    ) -> None:
        assert expected == halved(policy)
