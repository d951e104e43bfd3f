"""What only PostgreSQL can get wrong: tables by name, plans, limits of columns, ranks."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.common.db import Pool, connection
from services.common.paging import Page
from services.knowledge.domain.embedding import vector
from services.knowledge.domain.models import EmbeddingSpace, KnowledgeBase
from services.knowledge.domain.search.scope import Nearby, SearchScope
from services.knowledge.store.postgres import chunks as chunk_store
from services.knowledge.store.postgres import documents as document_store
from services.knowledge.store.postgres import queue as queue_store
from services.knowledge.store.postgres.tables import table_names
from tests.contracts.knowledge_stores import (
    ALICE,
    Stores,
    a_base,
    emptied,
    knowledge_database,
    open_knowledge_pool,
    postgres_stores,
)

__all__ = ["knowledge_database"]

PAGE = Page()
COPIES = """
INSERT INTO document (id, knowledge_base_id, display_name, media_type, metadata, content_id,
    content_hash, size_bytes, claim_after, create_time, update_time)
SELECT gen_random_uuid(), d.knowledge_base_id, i::text, '', '{}', d.content_id,
    d.content_hash, 0, now() - make_interval(secs => i), now(), now()
FROM document d, generate_series(1, $1) i
"""
CASES = Path(__file__).parents[1] / "cases"


@pytest.fixture
async def database(knowledge_database: str) -> str:
    """The address of an empty database."""
    return await emptied(knowledge_database)


@pytest.fixture
async def stores(database: str) -> AsyncIterator[Stores]:
    """The stores over it."""
    async with postgres_stores(database) as made:
        yield made


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    """Connections to it."""
    async with open_knowledge_pool(database) as made:
        yield made


async def search(
    stores: Stores, base: KnowledgeBase, query: Sequence[float], limit: int
) -> list[Nearby]:
    """What is near a vector in a base."""
    scope = SearchScope(base.space, (base.id,))
    return await stores.chunks.nearest(vector(query), scope=scope, limit=limit, viewer=ALICE)


async def fill(stores: Stores, base: KnowledgeBase, vectors: Mapping[str, Any]) -> None:
    """Make these searchable in a base."""
    await stores.ingested(base, "all.md", vectors)


class TestCrowdedTable:
    """Case 17: a small base beside a large one finds all that it has, in exact order."""

    CASE = CASES / "17-hnsw-filter-short"

    @pytest.mark.parametrize("eager", [False, True])
    async def test_a_search_gives_what_the_base_has(
        self, stores: Stores, pool: Pool, database: str, eager: bool
    ) -> None:
        expected = json.loads((self.CASE / "expected.json").read_text(encoding="utf-8"))
        fixture = json.loads((self.CASE / "fixture.json").read_text(encoding="utf-8"))
        large, small = await stores.base(), await stores.base()
        rows = fixture["base_A"]["rows"]
        await fill(stores, large, {f"A{i}": (1, i / 100_000, 0) for i in range(1, rows + 1)})
        await fill(stores, small, {f"B{j}": (0.1, 1, j / 10) for j in range(1, 21)})

        async with approximate_index(pool, eager=eager), postgres_stores(database) as fresh:
            ten = await search(fresh, small, fixture["query"], 10)
            fifty = await search(fresh, small, fixture["query"], 50)

        assert expected["search B k=10"] == [hit.chunk.text for hit in ten]
        assert expected["search B k=50"] == [hit.chunk.text for hit in fifty]


class TestCosine:
    """Case 18: the angle ranks, not the distance."""

    CASE = CASES / "18-l2-versus-cosine"

    async def test_vectors_of_any_length_rank_by_their_angle(self, stores: Stores) -> None:
        expected = json.loads((self.CASE / "expected.json").read_text(encoding="utf-8"))
        fixture = json.loads((self.CASE / "fixture.json").read_text(encoding="utf-8"))
        base = await stores.base()
        vectors = {name: (*values, 0.0) for name, values in fixture["vectors"].items()}
        await fill(stores, base, vectors)

        hits = await search(stores, base, (*fixture["query"], 0.0), 10)

        assert expected["order"] == [hit.chunk.text for hit in hits]
        for hit in hits:
            assert expected["similarity"][hit.chunk.text] == pytest.approx(hit.cosine, abs=2e-4)


class TestPlans:
    async def test_a_search_reads_its_base_alone(self, stores: Stores, pool: Pool) -> None:
        large, small = await stores.base(), await stores.base()
        await fill(stores, large, {f"A{i}": (1, i, 0) for i in range(5000)})
        await fill(stores, small, {f"B{i}": (1, i, 0) for i in range(20)})
        await analyze(pool)
        nearest = chunk_store._NEAREST.replace("chunk_table", "chunk_tiny")
        scan = ("acme", "alice", [small.id], vector((1, 0, 0)).tolist(), 10, None)

        plan = await explain(pool, nearest, *scan)

        assert rows_read(plan, "chunk_tiny") == 20

    async def test_pages_read_about_what_they_show(self, stores: Stores, pool: Pool) -> None:
        base = await stores.base()
        await fill(stores, base, {f"{i}": (1, 0, 0) for i in range(5000)})
        (document,) = await stores.documents.list_documents(base.id, viewer=ALICE, page=PAGE)
        await analyze(pool)
        listing = chunk_store._LIST.replace("chunk_table", "chunk_tiny")

        plan = await explain(pool, listing, "acme", "alice", document.id, 4000, 51)

        assert rows_read(plan, "chunk_tiny") == 51

    async def test_lists_and_claims_read_what_they_give(self, stores: Stores, pool: Pool) -> None:
        base = await stores.base()
        first = await stores.document(base)
        async with connection(pool) as lent:
            await lent.execute(COPIES, 20_000)
        await analyze(pool)

        listing = await explain(pool, document_store._LIST, "acme", "alice", base.id, first.id, 51)
        claim = await explain(pool, queue_store._CLAIM, 30.0)

        assert rows_read(listing, "document") == 51
        assert rows_read(claim, "document") == 2


class TestTables:
    async def test_vectors_stay_within_their_rows(self, stores: Stores, pool: Pool) -> None:
        await stores.base(space=EmbeddingSpace("wide", 3072))

        async with connection(pool) as lent:
            storage = await lent.fetchval(
                "SELECT attstorage FROM pg_attribute "
                "WHERE attrelid = 'chunk_wide'::regclass AND attname = 'embedding'"
            )

        assert storage == b"p"

    @pytest.mark.parametrize("dimensions", [3900, 3901, 16_000])
    async def test_a_vector_of_any_length_can_be_stored(
        self, stores: Stores, dimensions: int
    ) -> None:
        base = await stores.base(space=EmbeddingSpace("huge", dimensions))
        values = [1.0] + [0.5] * (dimensions - 1)

        await fill(stores, base, {"x" * 5000: values})

        assert [pytest.approx(1.0, abs=1e-3)] == [
            hit.cosine for hit in await search(stores, base, values, 5)
        ]

    async def test_hostile_names_of_models_are_just_names(self, stores: Stores) -> None:
        names = ["a; DROP TABLE document", 'x"); --', "模型", "", "A-B", "a_b", "a.b", "z" * 200]
        for name in [name for name in names if name]:
            base = await stores.base(space=EmbeddingSpace(name, 3))
            await fill(stores, base, {name: (1, 0, 0)})

            assert [name] == [hit.chunk.text for hit in await search(stores, base, (1, 0, 0), 5)]

    def test_names_are_readable_first_and_their_own_last(self) -> None:
        names = [list(table_names(EmbeddingSpace(model, 4))) for model in ("bge-m3", "BGE m3")]

        assert [name[0] for name in names] == ["chunk_bge_m3", "chunk_bge_m3"]
        assert names[0][1] == "chunk_bge_m3_4"
        assert names[0][2] != names[1][2]
        longest = list(table_names(EmbeddingSpace("x" * 200, 16_000)))
        assert all(len(name) <= 63 for name in longest)
        assert next(iter(table_names(EmbeddingSpace("模型", 4)))) == "chunk_model"

    async def test_two_at_once_open_one_table(self, database: str) -> None:
        space = EmbeddingSpace("raced", 3)
        async with postgres_stores(database) as one, postgres_stores(database) as other:
            opened = [
                each.bases.create_base(a_base(space=space), request=None)
                for each in (one, other) * 3
            ]
            await asyncio.gather(*opened)

            base = await one.base(space=space)
            await fill(other, base, {"text": (1, 0, 0)})
            assert len(await search(one, base, (1, 0, 0), 5)) == 1


class TestColumns:
    @pytest.mark.parametrize(
        ("column", "most"),
        [
            ("knowledge_base.display_name", 200),
            ("knowledge_base.description", 4000),
            ("document.display_name", 1000),
            ("document.media_type", 200),
        ],
    )
    async def test_hold_exactly_what_the_contract_allows(
        self, stores: Stores, pool: Pool, column: str, most: int
    ) -> None:
        await stores.document(await stores.base())
        table, name = column.split(".")
        statement = f"UPDATE {table} SET {name} = $1"

        async with connection(pool) as lent:
            await lent.execute(statement, "x" * most)
            with pytest.raises(asyncpg.CheckViolationError):
                await lent.execute(statement, "x" * (most + 1))


@asynccontextmanager
async def approximate_index(pool: Pool, *, eager: bool) -> AsyncIterator[None]:
    """An HNSW index on the chunks while the block lasts; `eager` keeps from sequential scans."""
    index = "CREATE INDEX approximate ON chunk_tiny USING hnsw (embedding halfvec_cosine_ops)"
    setting = "ALTER DATABASE {} SET enable_seqscan = {}"
    async with connection(pool) as lent:
        name = await lent.fetchval("SELECT quote_ident(current_database())")
        await lent.execute(index)
        await lent.execute("ANALYZE chunk_tiny")
        await lent.execute(setting.format(name, "off" if eager else "on"))
    try:
        yield
    finally:
        async with connection(pool) as lent:
            await lent.execute("DROP INDEX approximate")
            await lent.execute(setting.format(name, "on"))


async def analyze(pool: Pool) -> None:
    """Let the planner know the tables."""
    async with connection(pool) as lent:
        await lent.execute("ANALYZE chunk_tiny, knowledge_base, document")


async def explain(pool: Pool, statement: str, *values: object) -> list[dict[str, Any]]:
    """Every node of the plan that a statement really ran with."""
    async with connection(pool) as lent:
        rows = await lent.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *values)
    return list(nodes(json.loads(rows[0][0])[0]["Plan"]))


def rows_read(plan: list[dict[str, Any]], table: str) -> int:
    """How many rows of a table a plan looked at, those it threw away included."""
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in plan
        if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A node of a plan and all below it."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
