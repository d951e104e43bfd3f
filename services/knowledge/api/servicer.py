"""KnowledgeService over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from chatmind.knowledge.v1 import knowledge_service_pb2_grpc

from services.common.convert import canonical_id, required_id, to_text
from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.common.paging import PagedList, PageTokens
from services.knowledge.api.convert import bases as convert_bases
from services.knowledge.api.convert import documents as convert_documents
from services.knowledge.api.convert import search as convert_search
from services.knowledge.api.convert.common import to_request, to_request_id
from services.knowledge.api.uploads import IncomingUpload, UploadSlots
from services.knowledge.domain.bases import KnowledgeBases
from services.knowledge.domain.documents import Documents
from services.knowledge.domain.models import DocumentId, KnowledgeBaseId
from services.knowledge.domain.previews import Previews
from services.knowledge.domain.reading import FieldNames
from services.knowledge.domain.search.search import Search

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["KnowledgeService"].full_name


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What uploads may take.

    Attributes:
        max_bytes: of one.
        idle_seconds: without a part of one that is under way.
        slots: how many are held in memory at once.
    """

    max_bytes: int
    idle_seconds: float
    slots: UploadSlots


class KnowledgeServicer(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    """Answers with what the use cases give."""

    def __init__(
        self,
        bases: KnowledgeBases,
        documents: Documents,
        *,
        search: Search,
        previews: Previews,
        tokens: PageTokens,
        uploads: UploadLimits,
        draining: asyncio.Event,
    ) -> None:
        self._bases = bases
        self._documents = documents
        self._search = search
        self._previews = previews
        self._tokens = tokens
        self._uploads = uploads
        self._draining = draining

    async def CreateKnowledgeBase(
        self, request: pb.CreateKnowledgeBaseRequest, context: Context
    ) -> pb.CreateKnowledgeBaseResponse:
        """A new base."""
        wanted = convert_bases.to_new_base(request.knowledge_base)
        known = to_request("CreateKnowledgeBase", request.request_id, request.knowledge_base)
        base = await self._bases.create(wanted, identity=current_identity(), request=known)
        return pb.CreateKnowledgeBaseResponse(knowledge_base=convert_bases.from_base(base))

    async def GetKnowledgeBase(
        self, request: pb.GetKnowledgeBaseRequest, context: Context
    ) -> pb.GetKnowledgeBaseResponse:
        """One base."""
        base_id = _base_id(request.knowledge_base_id)
        base = await self._bases.get(base_id, identity=current_identity())
        return pb.GetKnowledgeBaseResponse(knowledge_base=convert_bases.from_base(base))

    async def ListKnowledgeBases(
        self, request: pb.ListKnowledgeBasesRequest, context: Context
    ) -> pb.ListKnowledgeBasesResponse:
        """The bases that the caller can see."""
        identity = current_identity()
        name = to_text(request.display_name, field="display_name", max_bytes=200)
        paged = PagedList.of(self._tokens, "knowledge_bases", identity, name)
        page = paged.page(request.page_size, request.page_token)
        found = await self._bases.page(page, display_name=name, identity=identity)
        return pb.ListKnowledgeBasesResponse(
            knowledge_bases=map(convert_bases.from_base, found.items),
            next_page_token=paged.next_token(found, lambda each: each.id),
        )

    async def UpdateKnowledgeBase(
        self, request: pb.UpdateKnowledgeBaseRequest, context: Context
    ) -> pb.UpdateKnowledgeBaseResponse:
        """The base with the named fields changed."""
        base_id = required_id(request.knowledge_base.id, field="knowledge_base.id")
        changes = convert_bases.to_changes(request.knowledge_base, request.update_mask)
        base = await self._bases.update(
            KnowledgeBaseId(base_id), changes, identity=current_identity()
        )
        return pb.UpdateKnowledgeBaseResponse(knowledge_base=convert_bases.from_base(base))

    async def DeleteKnowledgeBase(
        self, request: pb.DeleteKnowledgeBaseRequest, context: Context
    ) -> pb.DeleteKnowledgeBaseResponse:
        """What was deleted with the base."""
        base_id = _base_id(request.knowledge_base_id)
        receipt = await self._bases.delete(base_id, identity=current_identity())
        return pb.DeleteKnowledgeBaseResponse(receipt=convert_bases.from_receipt(receipt))

    async def CreateDocument(
        self, request: pb.CreateDocumentRequest, context: Context
    ) -> pb.CreateDocumentResponse:
        """The stored document, soon to be ingested."""
        document = await self._documents.put(
            convert_documents.to_upload(request),
            identity=current_identity(),
            request_id=to_request_id(request.request_id),
        )
        return pb.CreateDocumentResponse(document=convert_documents.from_document(document))

    async def UploadDocument(
        self, request_iterator: AsyncIterator[pb.UploadDocumentRequest], context: Context
    ) -> pb.UploadDocumentResponse:
        """The stored document, soon to be ingested."""
        identity = current_identity()
        incoming = IncomingUpload(
            request_iterator,
            max_bytes=self._uploads.max_bytes,
            idle_seconds=self._uploads.idle_seconds,
        )
        header = await incoming.header()
        await self._bases.changeable(_base_id(header.knowledge_base_id), identity=identity)
        async with self._uploads.slots.one():
            content, content_hash = await incoming.content(header)
            document = await self._documents.put(
                convert_documents.to_streamed_upload(header, content, content_hash),
                identity=identity,
                request_id=to_request_id(header.request_id),
                fields=FieldNames("data", "header.media_type"),
            )
        return pb.UploadDocumentResponse(document=convert_documents.from_document(document))

    async def GetDocument(
        self, request: pb.GetDocumentRequest, context: Context
    ) -> pb.GetDocumentResponse:
        """One document."""
        document_id = _document_id(request.document_id)
        document = await self._documents.get(document_id, identity=current_identity())
        return pb.GetDocumentResponse(document=convert_documents.from_document(document))

    async def ListDocuments(
        self, request: pb.ListDocumentsRequest, context: Context
    ) -> pb.ListDocumentsResponse:
        """The documents of a base."""
        identity, base_id = current_identity(), _base_id(request.knowledge_base_id)
        paged = PagedList.of(self._tokens, "documents", identity, base_id)
        page = paged.page(request.page_size, request.page_token)
        found = await self._documents.page(base_id, page, identity=identity)
        return pb.ListDocumentsResponse(
            documents=map(convert_documents.from_document, found.items),
            next_page_token=paged.next_token(found, lambda each: each.id),
        )

    async def DeleteDocument(
        self, request: pb.DeleteDocumentRequest, context: Context
    ) -> pb.DeleteDocumentResponse:
        """What was deleted with the document."""
        document_id = _document_id(request.document_id)
        receipt = await self._documents.delete(document_id, identity=current_identity())
        return pb.DeleteDocumentResponse(receipt=convert_bases.from_receipt(receipt))

    async def ReingestDocument(
        self, request: pb.ReingestDocumentRequest, context: Context
    ) -> pb.ReingestDocumentResponse:
        """The document, waiting again."""
        document_id = _document_id(request.document_id)
        document = await self._documents.reingest(document_id, identity=current_identity())
        return pb.ReingestDocumentResponse(document=convert_documents.from_document(document))

    async def WatchDocument(
        self, request: pb.WatchDocumentRequest, context: Context
    ) -> AsyncIterator[pb.WatchDocumentResponse]:
        """The document now and after each change."""
        changes = self._documents.watch(
            _document_id(request.document_id),
            identity=current_identity(),
            draining=self._draining,
        )
        async with aclosing(changes) as documents:
            async for document in documents:
                shown = convert_documents.from_document(document)
                yield pb.WatchDocumentResponse(document=shown)

    async def ListChunks(
        self, request: pb.ListChunksRequest, context: Context
    ) -> pb.ListChunksResponse:
        """The searchable chunks of a document."""
        identity, document_id = current_identity(), _document_id(request.document_id)
        paged = PagedList.of(self._tokens, "chunks", identity, document_id)
        page = paged.page(request.page_size, request.page_token)
        found = await self._documents.chunk_page(document_id, page, identity=identity)
        return pb.ListChunksResponse(
            chunks=map(convert_documents.from_chunk, found.items),
            next_page_token=paged.next_token(found, lambda each: each.ordinal),
        )

    async def PreviewChunks(
        self, request: pb.PreviewChunksRequest, context: Context
    ) -> pb.PreviewChunksResponse:
        """How a content would be cut."""
        cut = await self._previews.show(convert_documents.to_cut_request(request))
        return convert_documents.from_cut(cut)

    async def Search(self, request: pb.SearchRequest, context: Context) -> pb.SearchResponse:
        """The chunks that answer a question best."""
        question = convert_search.to_question(request)
        return convert_search.from_hits(
            await self._search.ask(question, identity=current_identity())
        )


def _base_id(identifier: str) -> KnowledgeBaseId:
    return KnowledgeBaseId(canonical_id(identifier))


def _document_id(identifier: str) -> DocumentId:
    return DocumentId(canonical_id(identifier))
