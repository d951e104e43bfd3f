"""What can be done with documents and their chunks."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator

from services.common.errors import UnavailableError
from services.common.hints import Listener, Notifier
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Listing, Page
from services.knowledge.domain.bases import KnowledgeBases, require_change
from services.knowledge.domain.errors import base_not_found, document_not_found
from services.knowledge.domain.hints import INGEST_QUEUE, document_key
from services.knowledge.domain.listing import cut_listing
from services.knowledge.domain.models import (
    AcceptedRequest,
    Chunk,
    ContentId,
    DeletionReceipt,
    Document,
    DocumentId,
    FreshIds,
    KnowledgeBase,
    KnowledgeBaseId,
    RequestId,
    Upload,
)
from services.knowledge.domain.ports import ChunkIndex, DocumentStore
from services.knowledge.domain.reading import FieldNames, check_readable

_FIELDS = FieldNames()


class Documents:
    """Stores, shows and deletes documents, each for those who may."""

    def __init__(
        self,
        store: DocumentStore,
        chunks: ChunkIndex,
        *,
        bases: KnowledgeBases,
        listener: Listener,
        notifier: Notifier,
        new_id: NewId,
    ) -> None:
        self._store = store
        self._chunks = chunks
        self._bases = bases
        self._listener = listener
        self._notifier = notifier
        self._new_id = new_id

    async def put(
        self,
        upload: Upload,
        *,
        identity: Identity,
        request_id: RequestId | None = None,
        fields: FieldNames = _FIELDS,
    ) -> Document:
        """Store an upload and queue it for ingestion.

        Args:
            upload: the file.
            identity: the caller.
            request_id: makes the call safe to repeat.
            fields: what the request calls them, for errors.

        Raises:
            InvalidEncodingError: the content is not text in its charset.
            UnsupportedMediaTypeError: documents of this kind cannot be read.
            NotFoundError: the base is unknown to the caller.
            PermissionDeniedError: the caller may only see the base.
            RequestIdReusedError: the request id stands for something else.
        """
        await self._bases.changeable(upload.knowledge_base_id, identity=identity)
        await asyncio.to_thread(
            check_readable,
            upload.content,
            name=upload.display_name,
            media_type=upload.media_type,
            fields=fields,
        )
        document = await self._store.put_document(
            upload,
            ids=self._fresh_ids(),
            viewer=identity,
            request=_request(upload, request_id),
        )
        if document is None:
            raise base_not_found(upload.knowledge_base_id)
        self._announce(document)
        return document

    async def get(self, document_id: DocumentId, *, identity: Identity) -> Document:
        """One document.

        Raises:
            NotFoundError: it is unknown to the caller.
        """
        document = await self._store.get_document(document_id, viewer=identity)
        if document is None:
            raise document_not_found(document_id)
        return document

    async def page(
        self, base_id: KnowledgeBaseId, page: Page, *, identity: Identity
    ) -> Listing[Document]:
        """Documents of a base.

        Raises:
            NotFoundError: the base is unknown to the caller.
        """
        await self._bases.get(base_id, identity=identity)
        rows = await self._store.list_documents(base_id, viewer=identity, page=page.with_one_more())
        return cut_listing(rows, size=page.size, weight=_weight)

    async def delete(self, document_id: DocumentId, *, identity: Identity) -> DeletionReceipt:
        """Delete a document with its chunks and vectors.

        Raises:
            NotFoundError: it is unknown to the caller.
            PermissionDeniedError: the caller may only see it.
        """
        require_change(await self._base_of(document_id, identity), identity)
        receipt = await self._store.delete_document(document_id, viewer=identity)
        if receipt is None:
            raise document_not_found(document_id)
        self._notifier.notify(document_key(document_id))
        return receipt

    async def reingest(self, document_id: DocumentId, *, identity: Identity) -> Document:
        """Queue the newest upload again.

        Raises:
            NotFoundError: it is unknown to the caller.
            PermissionDeniedError: the caller may only see it.
        """
        require_change(await self._base_of(document_id, identity), identity)
        document = await self._store.reingest_document(document_id, viewer=identity)
        if document is None:
            raise document_not_found(document_id)
        self._announce(document)
        return document

    async def watch(
        self, document_id: DocumentId, *, identity: Identity, draining: asyncio.Event
    ) -> AsyncGenerator[Document, None]:
        """The document now and after each change, until it is settled.

        Raises:
            NotFoundError: it is unknown to the caller, or not there any more.
            UnavailableError: the service is about to stop; another replica will answer.
        """
        with self._listener.subscribe(document_key(document_id)) as news:
            seen: Document | None = None
            while True:
                document = await self.get(document_id, identity=identity)
                if document != seen:
                    yield document
                    seen = document
                if document.state.settled:
                    return
                if draining.is_set():
                    raise UnavailableError("This replica is about to stop; watch again.")
                await news.wait()

    async def chunk_page(
        self, document_id: DocumentId, page: Page, *, identity: Identity
    ) -> Listing[Chunk]:
        """Searchable chunks of a document.

        Raises:
            NotFoundError: the document is unknown to the caller.
        """
        base = await self._base_of(document_id, identity)
        rows = await self._chunks.list_chunks(
            document_id, space=base.space, viewer=identity, page=page.with_one_more()
        )
        return cut_listing(rows, size=page.size, weight=chunk_weight)

    async def _base_of(self, document_id: DocumentId, identity: Identity) -> KnowledgeBase:
        base = await self._store.base_of(document_id, viewer=identity)
        if base is None:
            raise document_not_found(document_id)
        return base

    def _announce(self, document: Document) -> None:
        self._notifier.notify(document_key(document.id))
        if not document.state.settled:
            self._notifier.notify(INGEST_QUEUE)

    def _fresh_ids(self) -> FreshIds:
        return FreshIds(DocumentId(self._new_id()), ContentId(self._new_id()))


def chunk_weight(chunk: Chunk) -> int:
    """About how many bytes a chunk takes in a message."""
    return sum(len(text.encode()) for text in (chunk.text, *chunk.heading_path)) + 256


def _request(upload: Upload, request_id: RequestId | None) -> AcceptedRequest | None:
    """What the request id stands for: everything that a request to store this upload says."""
    if request_id is None:
        return None
    said = json.dumps(
        [
            upload.knowledge_base_id,
            upload.display_name,
            upload.media_type,
            upload.content_hash,
            upload.metadata,
        ],
        sort_keys=True,
    )
    return AcceptedRequest("CreateDocument", request_id, hashlib.sha256(said.encode()).digest())


def _weight(document: Document) -> int:
    metadata = json.dumps(document.metadata)
    error = document.error
    chunks = error.chunks if error else ()
    paths = sum(len(part.encode()) for chunk in chunks for part in chunk.heading_path)
    return len(metadata) + len(document.title.encode()) + paths + 2048
