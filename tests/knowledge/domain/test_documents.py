"""What can be done with documents, over the stores in memory."""

import asyncio
import hashlib
from dataclasses import replace

import pytest

from services.common.errors import (
    NotFoundError,
    PermissionDeniedError,
    RequestIdReusedError,
    UnavailableError,
)
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.bases import KnowledgeBases
from services.knowledge.domain.documents import Documents
from services.knowledge.domain.hints import INGEST_QUEUE, document_key
from services.knowledge.domain.ingest.errors import (
    InvalidEncodingError,
    UnknownCharsetError,
    UnsupportedMediaTypeError,
)
from services.knowledge.domain.models import (
    DocumentState,
    KnowledgeBase,
    RequestId,
    Upload,
    Visibility,
)
from services.knowledge.domain.reading import FieldNames
from tests.contracts.knowledge_stores import (
    ALICE,
    BOB,
    STRANGER,
    Stores,
    a_result,
    an_upload,
    memory_stores,
)
from tests.knowledge.doubles import LocalHints, MemoryEmbedder


class Bench:
    """The use cases over empty stores."""

    def __init__(self) -> None:
        self.stores: Stores = memory_stores()
        self.hints = LocalHints()
        self.documents = Documents(
            self.stores.documents,
            self.stores.chunks,
            bases=KnowledgeBases(self.stores.bases, MemoryEmbedder(), new_id=new_id),
            listener=self.hints,
            notifier=self.hints,
            new_id=new_id,
        )

    async def shared(self) -> KnowledgeBase:
        """A base that the tenant shares."""
        return await self.stores.base(visibility=Visibility.TENANT)


def with_content(upload: Upload, content: bytes) -> Upload:
    """The upload with other bytes."""
    digest = hashlib.sha256(content).hexdigest()
    return replace(upload, content=content, content_hash=digest)


class TestPut:
    async def test_stores_and_tells_the_workers(self) -> None:
        bench = Bench()
        base = await bench.stores.base()

        document = await bench.documents.put(an_upload(base.id), identity=ALICE)

        assert document == await bench.documents.get(document.id, identity=ALICE)
        assert bench.hints.notified == [document_key(document.id), INGEST_QUEUE]

    async def test_what_cannot_be_read_is_refused_before_anything_is_stored(self) -> None:
        bench = Bench()
        base = await bench.stores.base()
        fields = FieldNames("data", "header.media_type")

        for upload, error in (
            (an_upload(base.id, content=b"ab\xff"), InvalidEncodingError),
            (an_upload(base.id, media_type="image/png"), UnsupportedMediaTypeError),
            (an_upload(base.id, media_type="text/plain; charset=no"), UnknownCharsetError),
        ):
            with pytest.raises(error) as caught:
                await bench.documents.put(upload, identity=ALICE, fields=fields)
            assert caught.value.violations[0].field in {"data", "header.media_type"}
        page = await bench.documents.page(base.id, Page(), identity=ALICE)
        assert list(page.items) == []

    async def test_only_those_may_who_may_change_the_base(self) -> None:
        bench = Bench()
        base = await bench.shared()

        with pytest.raises(PermissionDeniedError):
            await bench.documents.put(an_upload(base.id), identity=BOB)
        with pytest.raises(NotFoundError):
            await bench.documents.put(an_upload(base.id), identity=STRANGER)

    async def test_a_request_id_stands_for_all_that_was_said(self) -> None:
        bench, request_id = Bench(), RequestId(new_id())
        base = await bench.stores.base()
        upload = an_upload(base.id, metadata={"a": 1})
        first = await bench.documents.put(upload, identity=ALICE, request_id=request_id)

        again = await bench.documents.put(upload, identity=ALICE, request_id=request_id)
        assert first == again
        for other in (
            with_content(upload, b"other"),
            replace(upload, metadata={"a": 2}),
            replace(upload, display_name="b.md"),
            replace(upload, media_type="text/plain"),
        ):
            with pytest.raises(RequestIdReusedError):
                await bench.documents.put(other, identity=ALICE, request_id=request_id)


class TestChange:
    @pytest.mark.parametrize(
        ("identity", "error"), [(BOB, PermissionDeniedError), (STRANGER, NotFoundError)]
    )
    async def test_others_cannot(self, identity: Identity, error: type[Exception]) -> None:
        bench = Bench()
        document = await bench.stores.document(await bench.shared())

        with pytest.raises(error):
            await bench.documents.delete(document.id, identity=identity)
        with pytest.raises(error):
            await bench.documents.reingest(document.id, identity=identity)

    async def test_the_owner_can(self) -> None:
        bench = Bench()
        base = await bench.stores.base()
        document = await bench.stores.ingested(base, "a.md", {"one": (1, 0, 0)})

        queued = await bench.documents.reingest(document.id, identity=ALICE)
        assert queued.state is DocumentState.PENDING
        assert INGEST_QUEUE in bench.hints.notified
        receipt = await bench.documents.delete(document.id, identity=ALICE)
        assert (receipt.documents, receipt.chunks) == (1, 1)


class TestChunkPage:
    async def test_holds_chunks_and_tells_of_more(self) -> None:
        bench = Bench()
        base = await bench.stores.base()
        document = await bench.stores.ingested(base, "a.md", {f"{i}": (1, 0, 0) for i in range(3)})

        page = await bench.documents.chunk_page(document.id, Page(2), identity=ALICE)

        assert ([chunk.text for chunk in page.items], page.more) == (["0", "1"], True)
        with pytest.raises(NotFoundError):
            await bench.documents.chunk_page(document.id, Page(2), identity=BOB)


class TestWatch:
    async def test_tells_each_change_once_and_ends_when_settled(self) -> None:
        bench, draining = Bench(), asyncio.Event()
        base = await bench.stores.base()
        document = await bench.stores.document(base)
        watch = bench.documents.watch(document.id, identity=ALICE, draining=draining)

        assert document == await anext(watch)
        job = await bench.stores.claimed()
        bench.hints.notify(document_key(document.id))
        assert (await anext(watch)).state is DocumentState.INGESTING
        await bench.stores.queue.finish(job, a_result({"one": (1, 0, 0)}))
        assert (await anext(watch)).state is DocumentState.READY  # found without a hint

        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    async def test_ends_when_the_service_does(self) -> None:
        bench, draining = Bench(), asyncio.Event()
        document = await bench.stores.document(await bench.stores.base())
        watch = bench.documents.watch(document.id, identity=ALICE, draining=draining)
        await anext(watch)

        draining.set()

        with pytest.raises(UnavailableError):
            await anext(watch)

    async def test_a_foreign_document_is_not_watched(self) -> None:
        bench = Bench()
        document = await bench.stores.document(await bench.stores.base())
        watch = bench.documents.watch(document.id, identity=BOB, draining=asyncio.Event())

        with pytest.raises(NotFoundError):
            await anext(watch)
