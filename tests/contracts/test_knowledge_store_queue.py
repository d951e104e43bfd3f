"""Every queue of documents hands them out once, and takes results from the claimant alone."""

import asyncio

import pytest

from services.common.paging import Page
from services.knowledge.domain.ingest.job import IngestJob, LeaseLostError, PutBack
from services.knowledge.domain.models import (
    Document,
    DocumentError,
    DocumentState,
    FailedChunk,
    KnowledgeBase,
)
from tests.contracts.knowledge_stores import (
    ALICE,
    LEASE,
    SPACE,
    Stores,
    a_result,
    addresses,
    an_upload,
    fresh_ids,
    knowledge_database,
    stores,
)

__all__ = ["addresses", "knowledge_database", "stores"]

ERROR = DocumentError(
    "CHUNK_NOT_EMBEDDED",
    "No vector for it.",
    (FailedChunk(("A", "B"), 3, 7), FailedChunk((), 9, 9)),
)
VECTORS = {"one": (1.0, 0.0, 0.0), "two": (0.6, 0.8, 0.0)}


async def again(stores: Stores, document: Document) -> Document:
    """The document as it is now."""
    found = await stores.documents.get_document(document.id, viewer=ALICE)
    assert found is not None
    return found


async def texts(stores: Stores, document: Document) -> list[str]:
    """The texts of its searchable chunks."""
    chunks = await stores.chunks.list_chunks(document.id, space=SPACE, viewer=ALICE, page=Page())
    return [chunk.text for chunk in chunks]


async def chunk_count(stores: Stores, base: KnowledgeBase) -> int:
    """How many chunks the base says it holds."""
    found = await stores.bases.get_base(base.id, viewer=ALICE)
    assert found is not None
    return found.chunk_count


async def every_write_is_refused(stores: Stores, job: IngestJob) -> None:
    """Check that nothing which the job brings is taken."""
    with pytest.raises(LeaseLostError):
        await stores.queue.renew(job, lease=LEASE)
    with pytest.raises(LeaseLostError):
        await stores.queue.record_progress(job, done=1, total=2)
    with pytest.raises(LeaseLostError):
        await stores.queue.finish(job, a_result(VECTORS))
    with pytest.raises(LeaseLostError):
        await stores.queue.fail(job, ERROR)
    with pytest.raises(LeaseLostError):
        await stores.queue.put_back(job, PutBack.HANDED_BACK, delay=0)


class TestClaim:
    async def test_tells_all_there_is_to_know(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base, "a.md", b"# A")

        job = await stores.claimed()

        assert (document.id, base.id, "a.md", "text/markdown") == (
            job.document_id,
            job.knowledge_base_id,
            job.display_name,
            job.media_type,
        )
        assert (base.space, base.embed_field, base.settings.chunking, ALICE) == (
            job.space,
            job.embed_field,
            job.chunking,
            job.owner,
        )
        assert (job.attempts, job.retries, job.generation) == (1, 0, 0)
        assert await stores.queue.content(job) == b"# A"
        assert (await again(stores, document)).state is DocumentState.INGESTING

    async def test_gives_each_document_once(self, stores: Stores) -> None:
        base = await stores.base()
        expected = {(await stores.document(base, f"{i}.md")).id for i in range(10)}

        jobs = await asyncio.gather(*(stores.queue.claim(lease=LEASE) for _ in range(14)))

        claimed = [job.document_id for job in jobs if job]
        assert len(claimed) == 10
        assert expected == set(claimed)

    async def test_takes_up_what_a_dead_worker_left(self, stores: Stores) -> None:
        await stores.document(await stores.base())
        dead = await stores.queue.claim(lease=0)
        assert dead is not None

        job = await stores.claimed()

        assert (dead.document_id, 2) == (job.document_id, job.attempts)
        assert job.epoch > dead.epoch
        await every_write_is_refused(stores, dead)
        await stores.queue.finish(job, a_result(VECTORS))

    async def test_leaves_a_renewed_claim_alone(self, stores: Stores) -> None:
        await stores.document(await stores.base())
        job = await stores.queue.claim(lease=0)
        assert job is not None

        await stores.queue.renew(job, lease=LEASE)

        assert await stores.queue.claim(lease=LEASE) is None


class TestProgress:
    async def test_shows_in_the_document(self, stores: Stores) -> None:
        document = await stores.document(await stores.base())

        await stores.queue.record_progress(await stores.claimed(), done=3, total=9)

        found = await again(stores, document)
        assert (found.chunks_done, found.chunks_total) == (3, 9)


class TestFinish:
    async def test_makes_all_of_it_searchable(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base)

        await stores.queue.finish(await stores.claimed(), a_result(VECTORS, title="A"))

        found = await again(stores, document)
        assert (
            found.state,
            found.chunks_done,
            found.chunks_total,
            found.title,
            found.searchable_version,
        ) == (DocumentState.READY, 2, 2, "A", 1)
        assert await texts(stores, document) == ["one", "two"]
        assert await chunk_count(stores, base) == 2
        assert await stores.queue.claim(lease=LEASE) is None

    async def test_replaces_what_was_searchable(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", VECTORS)
        await stores.document(base, "a.md", b"new")
        assert await texts(stores, document) == ["one", "two"]

        await stores.queue.finish(await stores.claimed(), a_result({"three": (0, 0, 1)}))

        assert await texts(stores, document) == ["three"]
        assert ((await again(stores, document)).searchable_version, 1) == (2, 1)
        assert await chunk_count(stores, base) == 1

    async def test_nothing_is_fine_too(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", VECTORS)
        await stores.document(base, "a.md", b"")

        await stores.queue.finish(await stores.claimed(), a_result({}))

        found = await again(stores, document)
        assert (found.state, found.chunks_total) == (DocumentState.READY, 0)
        assert await texts(stores, document) == []
        assert await chunk_count(stores, base) == 0


class TestLostClaim:
    async def test_a_newer_upload_ends_it(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base)
        job = await stores.claimed()

        await stores.documents.put_document(
            an_upload(base.id, content=b"new"), ids=fresh_ids(), viewer=ALICE, request=None
        )

        await every_write_is_refused(stores, job)
        found = await again(stores, document)
        assert (found.state, found.version, found.chunks_total) == (DocumentState.PENDING, 2, 0)
        assert await chunk_count(stores, base) == 0
        with pytest.raises(LeaseLostError):
            await stores.queue.content(job)

    async def test_a_deletion_ends_it(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.document(base)
        job = await stores.claimed()

        await stores.documents.delete_document(document.id, viewer=ALICE)

        await every_write_is_refused(stores, job)
        assert await chunk_count(stores, base) == 0

    async def test_the_deletion_of_the_base_ends_it(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.document(base)
        job = await stores.claimed()

        await stores.bases.delete_base(base.id, viewer=ALICE)

        await every_write_is_refused(stores, job)

    async def test_a_result_is_taken_once(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.document(base)
        job = await stores.claimed()
        await stores.queue.finish(job, a_result(VECTORS))

        await every_write_is_refused(stores, job)
        assert await chunk_count(stores, base) == 2


class TestFail:
    async def test_tells_why_and_keeps_what_was_searchable(self, stores: Stores) -> None:
        base = await stores.base()
        document = await stores.ingested(base, "a.md", VECTORS)
        await stores.document(base, "a.md", b"new")

        await stores.queue.fail(await stores.claimed(), ERROR)

        found = await again(stores, document)
        assert (
            found.state,
            found.error,
            found.searchable_version,
        ) == (DocumentState.FAILED, ERROR, 1)
        assert await texts(stores, document) == ["one", "two"]
        assert await stores.queue.claim(lease=LEASE) is None


class TestPutBack:
    @pytest.mark.parametrize(
        ("why", "attempts", "retries"),
        [(PutBack.HANDED_BACK, 1, 0), (PutBack.CRASHED, 2, 0), (PutBack.OUTAGE, 1, 1)],
    )
    async def test_counts_by_the_reason(
        self, stores: Stores, why: PutBack, attempts: int, retries: int
    ) -> None:
        document = await stores.document(await stores.base())

        await stores.queue.put_back(await stores.claimed(), why, delay=0, error=ERROR)

        found = await again(stores, document)
        assert (found.state, found.error) == (DocumentState.PENDING, ERROR)
        job = await stores.claimed()
        assert (attempts, retries) == (job.attempts, job.retries)

    async def test_waits_as_long_as_told(self, stores: Stores) -> None:
        await stores.document(await stores.base())

        await stores.queue.put_back(await stores.claimed(), PutBack.OUTAGE, delay=60)

        assert await stores.queue.claim(lease=LEASE) is None


class TestEmbeddedBefore:
    async def test_gives_the_searchable_vectors(self, stores: Stores) -> None:
        base = await stores.base()
        await stores.ingested(base, "a.md", VECTORS)
        await stores.document(base, "a.md", b"new")
        job = await stores.claimed()

        known = await stores.queue.embedded_before(job)

        assert job.model_digest == "weights-1"
        expected = {c.text_digest: c.embedded for c in a_result(VECTORS).chunks}
        assert set(expected) == set(known)
        for digest, embedded in expected.items():
            assert pytest.approx(list(embedded.vector), abs=1e-3) == list(known[digest].vector)
            assert (known[digest].token_count, known[digest].truncated) == (7, False)

    async def test_is_empty_for_a_new_document(self, stores: Stores) -> None:
        await stores.document(await stores.base())

        assert await stores.queue.embedded_before(await stores.claimed()) == {}
