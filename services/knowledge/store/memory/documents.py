"""Documents and their content in memory."""

from dataclasses import replace
from datetime import datetime

from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.errors import document_not_found
from services.knowledge.domain.models import (
    AcceptedRequest,
    ContentId,
    DeletionReceipt,
    Document,
    DocumentId,
    DocumentState,
    FreshIds,
    KnowledgeBase,
    KnowledgeBaseId,
    Upload,
)
from services.knowledge.store.memory.state import MemoryState, StoredDocument


class MemoryDocuments:
    """`DocumentStore` in memory; the methods are explained there."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def put_document(
        self, upload: Upload, *, ids: FreshIds, viewer: Identity, request: AcceptedRequest | None
    ) -> Document | None:
        if request is not None:
            made = self._state.find_request(request, viewer=viewer)
            if made is not None:
                return self._made_before(DocumentId(made), viewer)
        base = self._state.bases.get(upload.knowledge_base_id)
        if base is None or not base.changeable_by(viewer):
            return None
        document = self._put(upload, ids)
        if request is not None:
            self._state.record_request(request, document.id, viewer=viewer)
        return document

    async def get_document(self, document_id: DocumentId, *, viewer: Identity) -> Document | None:
        stored = self._state.stored(document_id, viewer=viewer)
        return None if stored is None else stored.document

    async def base_of(self, document_id: DocumentId, *, viewer: Identity) -> KnowledgeBase | None:
        stored = self._state.stored(document_id, viewer=viewer)
        if stored is None:
            return None
        return self._state.base(stored.document.knowledge_base_id, viewer=viewer)

    async def list_documents(
        self, base_id: KnowledgeBaseId, *, viewer: Identity, page: Page
    ) -> list[Document]:
        if self._state.base(base_id, viewer=viewer) is None:
            return []
        after = page.after[0] if page.after else ""
        documents = (stored.document for stored in self._state.stored_in(base_id))
        wanted = sorted((each for each in documents if each.id > after), key=lambda each: each.id)
        return wanted[: page.size]

    async def delete_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        stored = self._state.changeable(document_id, viewer=viewer)
        if stored is None:
            return None
        del self._state.documents[document_id]
        return DeletionReceipt(1, len(stored.chunks), self._state.clock())

    async def reingest_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> Document | None:
        stored = self._state.changeable(document_id, viewer=viewer)
        if stored is None:
            return None
        stored.queue(self._state.clock())
        return stored.document

    def _made_before(self, document_id: DocumentId, viewer: Identity) -> Document:
        stored = self._state.stored(document_id, viewer=viewer)
        if stored is None:
            raise document_not_found(document_id)
        return stored.document

    def _put(self, upload: Upload, ids: FreshIds) -> Document:
        for stored in self._state.stored_in(upload.knowledge_base_id):
            if stored.document.display_name == upload.display_name:
                self._put_again(upload, stored, ids.content_id)
                return stored.document
        now = self._state.clock()
        document = _new_document(upload, ids.document_id, now)
        self._state.documents[document.id] = StoredDocument(
            document, upload.content, ids.content_id, now, upload.metadata
        )
        return document

    def _put_again(self, upload: Upload, stored: StoredDocument, content_id: ContentId) -> None:
        present = stored.document
        if upload.repeats(present):
            if present.state is DocumentState.FAILED:
                stored.queue(self._state.clock())
            return
        stored.content, stored.content_id = upload.content, content_id
        stored.uploaded_metadata = upload.metadata
        stored.document = replace(
            present,
            version=present.version + 1,
            media_type=upload.media_type,
            content_hash=upload.content_hash,
            size_bytes=len(upload.content),
            metadata={**stored.front_matter, **upload.metadata},
        )
        stored.queue(self._state.clock())


def _new_document(upload: Upload, document_id: DocumentId, now: datetime) -> Document:
    return Document(
        id=document_id,
        knowledge_base_id=upload.knowledge_base_id,
        display_name=upload.display_name,
        media_type=upload.media_type,
        size_bytes=len(upload.content),
        content_hash=upload.content_hash,
        state=DocumentState.PENDING,
        chunks_done=0,
        chunks_total=0,
        error=None,
        metadata=upload.metadata,
        title=upload.display_name,
        version=1,
        searchable_version=0,
        create_time=now,
        update_time=now,
    )
