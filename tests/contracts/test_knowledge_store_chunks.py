"""Every store finds the nearest chunks, all of them, in one order."""

from dataclasses import replace

import pytest

from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.embedding import vector
from services.knowledge.domain.models import (
    DocumentId,
    EmbeddingSpace,
    KnowledgeBase,
    KnowledgeBaseId,
    Visibility,
)
from services.knowledge.domain.search.scope import Nearby, SearchScope
from tests.contracts.knowledge_stores import (
    ALICE,
    BOB,
    SPACE,
    STRANGER,
    Stores,
    addresses,
    knowledge_database,
    stores,
)

__all__ = ["addresses", "knowledge_database", "stores"]

QUERY = vector((1, 0, 0))
FAN = {"far": (0.0, 1.0, 0.0), "near": (1.0, 0.1, 0.0), "middle": (1.0, 1.0, 0.0)}


async def nearest(
    stores: Stores, *bases: KnowledgeBase, limit: int = 10, viewer: Identity = ALICE
) -> list[Nearby]:
    """What is near the query in the bases."""
    scope = SearchScope(bases[0].space, tuple(base.id for base in bases))
    return await stores.chunks.nearest(QUERY, scope=scope, limit=limit, viewer=viewer)


def texts(found: list[Nearby]) -> list[str]:
    """The texts in the order found."""
    return [each.chunk.text for each in found]


class TestNearest:
    async def test_orders_by_the_angle(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", FAN)

        found = await nearest(stores, base)

        assert texts(found) == ["near", "middle", "far"]
        assert pytest.approx([0.9950, 0.7071, 0.0], abs=1e-3) == [each.cosine for each in found]
        assert {"a.md"} == {each.document_name for each in found}
        assert (base.id, document.id, ("Top", "near"), 1) == (
            found[0].chunk.knowledge_base_id,
            found[0].chunk.document_id,
            found[0].chunk.heading_path,
            found[0].chunk.ordinal,
        )

    async def test_gives_as_many_as_there_are(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", FAN)

        assert len(await nearest(stores, base, limit=50)) == 3
        assert texts(await nearest(stores, base, limit=1)) == ["near"]

    async def test_ties_stand_in_the_order_of_ids(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", {f"{i}": (1.0, 1.0, 0.0) for i in range(30)})

        found = await nearest(stores, base, limit=20)

        ids = [each.chunk.id for each in found]
        assert sorted(ids) == ids
        assert ids == [each.chunk.id for each in await nearest(stores, base, limit=20)]

    async def test_looks_in_the_bases_asked_for_only(self, stores: Stores) -> None:
        one, two, three = [await stores.base() for _ in range(3)]
        await stores.ingested(one, "1.md", {"one": (1, 0, 0)})
        await stores.ingested(two, "2.md", {"two": (1, 1, 0)})
        await stores.ingested(three, "3.md", {"three": (1, 0, 0)})

        assert texts(await nearest(stores, one, two)) == ["one", "two"]

    async def test_looks_in_the_documents_asked_for_only(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", {"a": (1, 0, 0)})
        wanted = await stores.ingested(base, "b.md", {"b": (0, 1, 0)})
        unknown = DocumentId(new_id())
        scope = SearchScope(SPACE, (base.id,), (wanted.id, unknown))

        found = await stores.chunks.nearest(QUERY, scope=scope, limit=10, viewer=ALICE)
        none = await stores.chunks.nearest(
            QUERY, scope=replace(scope, document_ids=(unknown,)), limit=10, viewer=ALICE
        )

        assert texts(found) == ["b"]
        assert none == []

    async def test_shows_nothing_of_an_unfinished_version(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", FAN)
        await stores.document(base, "a.md", b"new")
        job = await stores.claimed()
        await stores.queue.record_progress(job, done=1, total=2)

        assert texts(await nearest(stores, base)) == ["near", "middle", "far"]

    @pytest.mark.parametrize("viewer", [BOB, STRANGER])
    async def test_a_private_base_is_searched_by_its_owner_alone(
        self, stores: Stores, viewer: Identity
    ) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", FAN)

        assert await nearest(stores, base, viewer=viewer) == []

    async def test_a_shared_base_is_searched_in_its_tenant(self, stores: Stores) -> None:
        base = await stores.base(visibility=Visibility.TENANT)
        await stores.ingested(base, "a.md", FAN)

        assert len(await nearest(stores, base, viewer=BOB)) == 3
        assert await nearest(stores, base, viewer=STRANGER) == []

    async def test_an_unknown_base_holds_nothing(self, stores: Stores) -> None:
        await stores.base()
        scope = SearchScope(SPACE, (KnowledgeBaseId(new_id()),))

        assert await stores.chunks.nearest(QUERY, scope=scope, limit=9, viewer=ALICE) == []

    async def test_spaces_are_apart(self, stores: Stores) -> None:
        one = await stores.base(space=EmbeddingSpace("a-b", 3))
        other = await stores.base(space=EmbeddingSpace("a_b", 3))
        wide = await stores.base(space=EmbeddingSpace("a-b", 4))
        await stores.ingested(one, "1.md", {"one": (1, 0, 0)})
        await stores.ingested(other, "2.md", {"other": (1, 0, 0)})
        await stores.ingested(wide, "3.md", {"wide": (1, 0, 0, 0)})

        assert texts(await nearest(stores, one)) == ["one"]
        assert texts(await nearest(stores, other)) == ["other"]


class TestListChunks:
    async def test_pages_hold_a_documents_chunks_in_their_order(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", {f"{i}": (1, 0, 0) for i in range(5)})
        await stores.ingested(base, "b.md", {"other": (1, 0, 0)})
        read = stores.chunks.list_chunks

        first = await read(document.id, space=SPACE, viewer=ALICE, page=Page(2))
        rest = await read(document.id, space=SPACE, viewer=ALICE, page=Page(9, ("1",)))

        assert [chunk.text for chunk in first] == ["0", "1"]
        assert [chunk.text for chunk in rest] == ["2", "3", "4"]
        assert [chunk.ordinal for chunk in rest] == [2, 3, 4]

    async def test_nobody_else_reads_them(self, stores: Stores) -> None:
        document = await stores.ingested(await stores.base(), "a.md", FAN)

        for viewer in (BOB, STRANGER):
            chunks = await stores.chunks.list_chunks(
                document.id, space=SPACE, viewer=viewer, page=Page()
            )
            assert chunks == []
