"""Every store of documents keeps, versions and guards them alike."""

import asyncio
from dataclasses import replace

import pytest

from services.common.errors import NotFoundError, RequestIdReusedError
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.ingest.job import PutBack
from services.knowledge.domain.models import (
    Document,
    DocumentError,
    DocumentState,
    KnowledgeBase,
    KnowledgeBaseId,
    Upload,
    Visibility,
)
from tests.contracts.knowledge_stores import (
    ADMIN,
    ALICE,
    BOB,
    STRANGER,
    Stores,
    a_request,
    a_result,
    addresses,
    an_upload,
    fresh_ids,
    knowledge_database,
    stores,
)

__all__ = ["addresses", "knowledge_database", "stores"]

SHARED = Visibility.TENANT
ERROR = DocumentError("INGESTION_FAILED", "It would not.")


async def put(stores: Stores, upload: Upload, viewer: Identity = ALICE) -> Document | None:
    """The upload, stored."""
    return await stores.documents.put_document(upload, ids=fresh_ids(), viewer=viewer, request=None)


async def counts(stores: Stores, base: KnowledgeBase) -> tuple[int, int]:
    """How many documents and chunks the base says it holds."""
    found = await stores.bases.get_base(base.id, viewer=ALICE)
    assert found is not None
    return found.document_count, found.chunk_count


class TestPutDocument:
    async def test_keeps_everything_and_waits(self, stores: Stores) -> None:
        base = await stores.base()
        upload = an_upload(base.id, "dir/a.md", b"# A", metadata={"tags": ["x", None, 1.5]})

        document = await put(stores, upload)

        assert document is not None
        assert document == await stores.documents.get_document(document.id, viewer=ALICE)
        assert (upload.display_name, upload.media_type, upload.content_hash, upload.metadata) == (
            document.display_name,
            document.media_type,
            document.content_hash,
            document.metadata,
        )
        assert document.state is DocumentState.PENDING
        assert (document.version, document.searchable_version) == (1, 0)
        assert (document.title, document.size_bytes, document.error) == ("dir/a.md", 3, None)
        assert await counts(stores, base) == (1, 0)

    async def test_the_same_content_changes_nothing(self, stores: Stores) -> None:
        base = await stores.base()
        first = await stores.ingested(base, "a.md", {"one": (1, 0, 0)})
        upload = an_upload(base.id, "a.md", b"a.md\none", metadata={"other": True})

        again = await put(stores, upload)

        assert first == again
        assert await stores.queue.claim(lease=1) is None

    async def test_other_content_is_a_new_version(self, stores: Stores) -> None:
        base = await stores.base()
        first = await stores.ingested(base, "a.md", {"one": (1, 0, 0)})

        second = await put(stores, an_upload(base.id, "a.md", b"new", metadata={"v": 2}))

        assert second is not None
        assert (first.id, 2, 1) == (second.id, second.version, second.searchable_version)
        assert (
            second.state,
            second.chunks_done,
            second.chunks_total,
        ) == (DocumentState.PENDING, 0, 0)
        assert second.metadata == {"v": 2}
        assert await counts(stores, base) == (1, 1)
        assert await stores.queue.content(await stores.claimed()) == b"new"

    async def test_another_media_type_is_a_new_version(self, stores: Stores) -> None:
        base = await stores.base()
        await put(stores, an_upload(base.id))

        second = await put(stores, an_upload(base.id, media_type="text/plain"))

        assert second is not None
        assert (second.version, second.media_type) == (2, "text/plain")

    async def test_the_same_content_is_tried_again_after_a_failure(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.document(base)
        await stores.queue.fail(await stores.claimed(), ERROR)

        again = await put(stores, an_upload(base.id))

        assert again is not None
        assert (again.state, again.version, again.error) == (DocumentState.PENDING, 1, None)
        assert await stores.queue.content(await stores.claimed()) == b"text"

    async def test_equal_names_in_two_bases_are_two_documents(self, stores: Stores) -> None:
        one, other = await stores.base(), await stores.base()

        assert (await stores.document(one)).id != (await stores.document(other)).id

    async def test_many_at_once_under_one_name_make_one_document(self, stores: Stores) -> None:
        base = await stores.base()
        uploads = [an_upload(base.id, "a.md", f"{i % 4}".encode()) for i in range(8)]

        results = await asyncio.gather(*(put(stores, upload) for upload in uploads))

        assert len({document.id for document in results if document}) == 1
        assert await counts(stores, base) == (1, 0)
        newest = max((each for each in results if each), key=lambda each: each.version)
        content = await stores.queue.content(await stores.claimed())
        assert newest.content_hash == an_upload(base.id, content=content).content_hash

    async def test_many_names_at_once_are_all_counted(self, stores: Stores) -> None:
        base = await stores.base()

        await asyncio.gather(*(stores.document(base, f"{i}.md") for i in range(12)))

        assert await counts(stores, base) == (12, 0)


class TestRequestIds:
    async def test_the_same_request_gives_its_document(self, stores: Stores) -> None:
        base, request = await stores.base(), a_request("one")
        upload = an_upload(base.id)
        first = await stores.documents.put_document(
            upload, ids=fresh_ids(), viewer=ALICE, request=request
        )

        again = await stores.documents.put_document(
            upload, ids=fresh_ids(), viewer=ALICE, request=request
        )

        assert first == again

    async def test_at_the_same_time_it_is_stored_once(self, stores: Stores) -> None:
        base, request = await stores.base(), a_request("one")
        calls = [
            stores.documents.put_document(
                an_upload(base.id), ids=fresh_ids(), viewer=ALICE, request=request
            )
            for _ in range(6)
        ]

        results = await asyncio.gather(*calls)

        assert len({document.id for document in results if document}) == 1
        assert await counts(stores, base) == (1, 0)

    async def test_for_something_else_it_is_refused(self, stores: Stores) -> None:
        base, request = await stores.base(), a_request("one")
        await stores.documents.put_document(
            an_upload(base.id), ids=fresh_ids(), viewer=ALICE, request=request
        )
        other = replace(request, digest=a_request("two").digest)

        with pytest.raises(RequestIdReusedError):
            await stores.documents.put_document(
                an_upload(base.id, "b.md"), ids=fresh_ids(), viewer=ALICE, request=other
            )
        assert await counts(stores, base) == (1, 0)

    async def test_it_does_not_bring_a_deleted_document_back(self, stores: Stores) -> None:
        base, request = await stores.base(), a_request("one")
        document = await stores.documents.put_document(
            an_upload(base.id), ids=fresh_ids(), viewer=ALICE, request=request
        )
        assert document is not None
        await stores.documents.delete_document(document.id, viewer=ALICE)

        with pytest.raises(NotFoundError):
            await stores.documents.put_document(
                an_upload(base.id), ids=fresh_ids(), viewer=ALICE, request=request
            )
        assert await counts(stores, base) == (0, 0)


class TestVisibility:
    @pytest.mark.parametrize("viewer", [BOB, ADMIN, STRANGER])
    async def test_documents_of_a_private_base_are_its_owners_alone(
        self, stores: Stores, viewer: Identity
    ) -> None:
        base = await stores.base()
        document = await stores.document(base)
        documents = stores.documents

        assert await put(stores, an_upload(base.id, "b.md"), viewer) is None
        assert await documents.get_document(document.id, viewer=viewer) is None
        assert await documents.base_of(document.id, viewer=viewer) is None
        assert await documents.list_documents(base.id, viewer=viewer, page=Page()) == []
        assert await documents.delete_document(document.id, viewer=viewer) is None
        assert await documents.reingest_document(document.id, viewer=viewer) is None
        assert document == await documents.get_document(document.id, viewer=ALICE)
        assert await counts(stores, base) == (1, 0)

    async def test_a_shared_base_is_read_by_all_and_filled_by_owner_and_admin(
        self, stores: Stores
    ) -> None:
        base = await stores.base(visibility=SHARED)
        document = await stores.document(base)
        documents = stores.documents

        assert document == await documents.get_document(document.id, viewer=BOB)
        assert [document] == await documents.list_documents(base.id, viewer=BOB, page=Page())
        assert await put(stores, an_upload(base.id, "b.md"), BOB) is None
        assert await documents.delete_document(document.id, viewer=BOB) is None
        assert await documents.reingest_document(document.id, viewer=BOB) is None
        assert await put(stores, an_upload(base.id, "b.md"), ADMIN) is not None
        assert await documents.delete_document(document.id, viewer=ADMIN) is not None

    async def test_an_unknown_base_takes_nothing(self, stores: Stores) -> None:
        assert await put(stores, an_upload(KnowledgeBaseId(new_id()))) is None


class TestListDocuments:
    async def test_pages_hold_the_bases_documents_in_the_order_of_ids(self, stores: Stores) -> None:
        base, other = await stores.base(), await stores.base()
        ids = sorted([(await stores.document(base, f"{i}.md")).id for i in range(5)])
        await stores.document(other)

        first = await stores.documents.list_documents(base.id, viewer=ALICE, page=Page(2))
        rest = await stores.documents.list_documents(base.id, viewer=ALICE, page=Page(9, (ids[1],)))

        assert ids[:2] == [document.id for document in first]
        assert ids[2:] == [document.id for document in rest]


class TestDeleteDocument:
    async def test_takes_chunks_and_counts_along(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", {"one": (1, 0, 0), "two": (0, 1, 0)})
        await stores.ingested(base, "b.md", {"three": (0, 0, 1)})

        receipt = await stores.documents.delete_document(document.id, viewer=ALICE)

        assert receipt is not None
        assert (receipt.documents, receipt.chunks) == (1, 2)
        assert await counts(stores, base) == (1, 1)
        assert await stores.documents.delete_document(document.id, viewer=ALICE) is None

    async def test_makes_room_for_the_name(self, stores: Stores) -> None:
        base = await stores.base()
        first = await stores.document(base)
        await stores.documents.delete_document(first.id, viewer=ALICE)

        second = await stores.document(base)

        assert first.id != second.id
        assert second.version == 1


class TestReingestDocument:
    async def test_queues_the_newest_upload_and_keeps_what_is_searchable(
        self, stores: Stores
    ) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", {"one": (1, 0, 0)})

        queued = await stores.documents.reingest_document(document.id, viewer=ALICE)

        assert queued is not None
        assert (
            queued.state,
            queued.version,
            queued.searchable_version,
        ) == (DocumentState.PENDING, 1, 1)
        assert await counts(stores, base) == (1, 1)
        assert await stores.queue.content(await stores.claimed()) == b"a.md\none"

    async def test_starts_the_counting_of_failures_over(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base)
        await stores.queue.put_back(await stores.claimed(), PutBack.CRASHED, delay=0)

        await stores.documents.reingest_document(document.id, viewer=ALICE)

        assert (await stores.claimed()).attempts == 1


class TestMetadata:
    async def test_the_uploaders_stands_over_the_front_matter(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base, metadata={"a": 1, "b": "upload"})
        result = a_result({}, title="Title", metadata={"b": "front", "c": [1]})
        await stores.queue.finish(await stores.claimed(), result)

        found = await stores.documents.get_document(document.id, viewer=ALICE)

        assert found is not None
        assert (found.title, found.metadata) == ("Title", {"a": 1, "b": "upload", "c": [1]})
