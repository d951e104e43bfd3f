"""Every store of bases keeps and guards them alike."""

import pytest

from services.common.errors import NotFoundError, RequestIdReusedError
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.ingest.policy import ChunkPolicy
from services.knowledge.domain.models import BaseChanges, KnowledgeBaseId, Visibility
from tests.contracts.knowledge_stores import (
    ADMIN,
    ALICE,
    BOB,
    STRANGER,
    Stores,
    a_base,
    a_request,
    addresses,
    knowledge_database,
    stores,
)

__all__ = ["addresses", "knowledge_database", "stores"]

SHARED = Visibility.TENANT


class TestCreateBase:
    async def test_keeps_everything(self, stores: Stores) -> None:
        base = a_base()

        created = await stores.bases.create_base(base, request=None)

        assert created == await stores.bases.get_base(base.id, viewer=ALICE)
        assert (base.settings, base.type, base.space, base.embed_field) == (
            created.settings,
            created.type,
            created.space,
            created.embed_field,
        )
        assert base.create_time < created.create_time == created.update_time
        assert (created.document_count, created.chunk_count) == (0, 0)

    async def test_the_same_request_gives_the_first_base(self, stores: Stores) -> None:
        request = a_request("one")
        first = await stores.bases.create_base(a_base(), request=request)

        again = await stores.bases.create_base(a_base(), request=request)

        assert first == again
        assert first.id == await stores.bases.requested_base(request, viewer=ALICE)

    async def test_the_same_request_id_for_something_else_is_refused(self, stores: Stores) -> None:
        request = a_request("one")
        await stores.bases.create_base(a_base(), request=request)
        other = a_request("two", request_id=request.request_id)

        with pytest.raises(RequestIdReusedError):
            await stores.bases.create_base(a_base(), request=other)
        with pytest.raises(RequestIdReusedError):
            await stores.bases.requested_base(other, viewer=ALICE)

    async def test_request_ids_of_two_users_do_not_meet(self, stores: Stores) -> None:
        request = a_request("one")
        hers = await stores.bases.create_base(a_base(ALICE), request=request)

        his = await stores.bases.create_base(a_base(BOB), request=request)

        assert hers.id != his.id

    async def test_a_request_does_not_bring_a_deleted_base_back(self, stores: Stores) -> None:
        request = a_request("one")
        base = await stores.bases.create_base(a_base(), request=request)
        await stores.bases.delete_base(base.id, viewer=ALICE)

        with pytest.raises(NotFoundError):
            await stores.bases.create_base(a_base(), request=request)


class TestVisibility:
    @pytest.mark.parametrize("viewer", [BOB, ADMIN, STRANGER])
    async def test_a_private_base_is_its_owners_alone(
        self, stores: Stores, viewer: Identity
    ) -> None:
        base = await stores.base()

        assert await stores.bases.get_base(base.id, viewer=viewer) is None
        assert await stores.bases.list_bases(viewer=viewer, display_name="", page=Page()) == []
        assert await stores.bases.delete_base(base.id, viewer=viewer) is None
        changes = BaseChanges(description="mine")
        assert await stores.bases.update_base(base.id, changes, viewer=viewer) is None
        assert base == await stores.bases.get_base(base.id, viewer=ALICE)

    async def test_a_shared_base_is_seen_in_its_tenant_only(self, stores: Stores) -> None:
        base = await stores.base(visibility=SHARED)

        assert base == await stores.bases.get_base(base.id, viewer=BOB)
        assert await stores.bases.get_base(base.id, viewer=STRANGER) is None

    async def test_a_shared_base_is_changed_by_owner_and_admin_only(self, stores: Stores) -> None:
        base = await stores.base(visibility=SHARED)
        changes = BaseChanges(description="new")

        assert await stores.bases.update_base(base.id, changes, viewer=BOB) is None
        assert await stores.bases.update_base(base.id, changes, viewer=ADMIN) is not None
        assert await stores.bases.delete_base(base.id, viewer=BOB) is None
        assert await stores.bases.delete_base(base.id, viewer=ADMIN) is not None

    async def test_of_several_those_are_given_that_are_seen(self, stores: Stores) -> None:
        own, shared = await stores.base(), await stores.base(BOB, SHARED)
        private = await stores.base(BOB)
        asked = [own.id, private.id, shared.id, KnowledgeBaseId(new_id())]

        found = await stores.bases.get_bases(asked, viewer=ALICE)

        assert sorted([own.id, shared.id]) == sorted(base.id for base in found)

    async def test_an_unknown_base_is_none(self, stores: Stores) -> None:
        assert await stores.bases.get_base(KnowledgeBaseId(new_id()), viewer=ALICE) is None


class TestUpdateBase:
    async def test_changes_what_is_given_and_nothing_else(self, stores: Stores) -> None:
        base = await stores.base()
        changes = BaseChanges(description="", chunking=ChunkPolicy(100, 0))

        changed = await stores.bases.update_base(base.id, changes, viewer=ALICE)

        assert changed is not None
        assert (changed.settings.display_name, changed.settings.description) == ("notes", "")
        assert ChunkPolicy(100, 0) == changed.settings.chunking
        assert base.settings.visibility == changed.settings.visibility
        assert base.update_time <= changed.update_time
        assert changed == await stores.bases.get_base(base.id, viewer=ALICE)


class TestListBases:
    async def test_pages_hold_own_and_shared_bases_in_the_order_of_ids(
        self, stores: Stores
    ) -> None:
        bases = [
            await stores.base(ALICE),
            await stores.base(BOB),
            await stores.base(BOB, SHARED),
            await stores.base(ALICE, SHARED),
            await stores.base(STRANGER, SHARED),
        ]
        expected = sorted(bases[i].id for i in (0, 2, 3))

        first = await stores.bases.list_bases(viewer=ALICE, display_name="", page=Page(2))
        rest = await stores.bases.list_bases(
            viewer=ALICE, display_name="", page=Page(2, (expected[1],))
        )

        assert expected[:2] == [base.id for base in first]
        assert expected[2:] == [base.id for base in rest]

    async def test_a_name_keeps_exactly_that_name(self, stores: Stores) -> None:
        await stores.base(name="notes")
        wanted = await stores.base(name="Notes")
        shared = await stores.base(BOB, SHARED, name="Notes")
        await stores.base(BOB, name="Notes")

        found = await stores.bases.list_bases(viewer=ALICE, display_name="Notes", page=Page())

        assert sorted([wanted.id, shared.id]) == [base.id for base in found]


class TestDeleteBase:
    async def test_takes_everything_in_it_along(self, stores: Stores) -> None:
        base, kept = await stores.base(), await stores.base(name="kept")
        document = await stores.ingested(base, "a.md", {"one": (1, 0, 0), "two": (0, 1, 0)})
        await stores.ingested(kept, "b.md", {"three": (0, 0, 1)})
        await stores.document(base, "waiting.md")

        receipt = await stores.bases.delete_base(base.id, viewer=ALICE)

        assert receipt is not None
        assert (receipt.documents, receipt.chunks) == (2, 2)
        assert await stores.bases.get_base(base.id, viewer=ALICE) is None
        assert await stores.documents.get_document(document.id, viewer=ALICE) is None
        assert await stores.queue.claim(lease=1) is None
        left = await stores.bases.get_base(kept.id, viewer=ALICE)
        assert left is not None
        assert (left.document_count, left.chunk_count) == (1, 1)
