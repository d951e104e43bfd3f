"""From a question to hits, over the stores in memory."""

import pytest

from services.common.errors import InvalidArgumentError, NotFoundError
from services.common.ids import new_id
from services.knowledge.domain.errors import EmbeddingModelMismatchError
from services.knowledge.domain.models import EmbeddingSpace, KnowledgeBaseId
from services.knowledge.domain.search.query_vectors import QueryVectors
from services.knowledge.domain.search.search import Question, Search
from services.knowledge.domain.search.vector import VectorLeg
from tests.contracts.knowledge_stores import ALICE, BOB, Stores, memory_stores
from tests.knowledge.doubles import SPACE, MemoryEmbedder
from tests.knowledge.fake_embedding import bigram_vector

OTHER = EmbeddingSpace("other", 8)
TEXTS = ("boil the water", "hoist the sails", "shell the peas")


class Bench:
    """A search over stores in memory."""

    def __init__(self) -> None:
        self.stores: Stores = memory_stores()
        queries = QueryVectors(MemoryEmbedder(SPACE, OTHER), capacity=10)
        self.search = Search(self.stores.bases, VectorLeg(self.stores.chunks, queries))

    async def base(self, space: EmbeddingSpace = SPACE) -> KnowledgeBaseId:
        """A base with three texts."""
        base = await self.stores.base(space=space)
        vectors = {text: bigram_vector(text, space.dimensions) for text in TEXTS}
        await self.stores.ingested(base, "a.md", vectors)
        return base.id


class TestAsk:
    async def test_gives_hits_best_first_with_their_ranks(self) -> None:
        bench = Bench()
        base = await bench.base()

        hits = await bench.search.ask(Question((base,), "hoist the sails"), identity=ALICE)

        assert hits[0].chunk.text == "hoist the sails"
        assert [hit.vector_rank for hit in hits] == [1, 2, 3]
        assert sorted((hit.score for hit in hits), reverse=True) == [hit.score for hit in hits]
        assert hits[0].score == pytest.approx(1.0, abs=1e-3)

    async def test_bounds_them_by_number_and_score(self) -> None:
        bench = Bench()
        base = await bench.base()
        every = await bench.search.ask(Question((base,), "sails"), identity=ALICE)

        two = await bench.search.ask(Question((base,), "sails", top_k=2), identity=ALICE)
        least = every[1].score
        good = await bench.search.ask(Question((base,), "sails", min_score=least), identity=ALICE)
        none = await bench.search.ask(Question((base,), "sails", min_score=1.0), identity=ALICE)

        assert every[:2] == two == good
        assert none == []

    async def test_an_unknown_base_among_known_ones_is_named(self) -> None:
        bench = Bench()
        base, unknown = await bench.base(), KnowledgeBaseId(new_id())

        with pytest.raises(NotFoundError) as caught:
            await bench.search.ask(Question((base, unknown), "sails"), identity=ALICE)
        assert caught.value.metadata["id"] == unknown
        with pytest.raises(NotFoundError):
            await bench.search.ask(Question((base,), "sails"), identity=BOB)

    async def test_bases_of_two_spaces_are_refused(self) -> None:
        bench = Bench()
        bases = (await bench.base(), await bench.base(OTHER))

        with pytest.raises(EmbeddingModelMismatchError):
            await bench.search.ask(Question(bases, "sails"), identity=ALICE)

    @pytest.mark.parametrize("text", ["", " \n\t"])
    async def test_a_blank_question_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgumentError):
            await Bench().search.ask(Question((), text), identity=ALICE)
