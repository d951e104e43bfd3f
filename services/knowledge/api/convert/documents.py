"""Documents and chunks between wire and domain."""

import hashlib

from chatmind.knowledge.v1 import document_pb2, knowledge_service_pb2
from google.protobuf.struct_pb2 import Struct

from services.common.convert import canonical_id, from_json, from_time, to_text
from services.common.errors import InvalidArgumentError
from services.common.text import Json, clean
from services.knowledge.api.convert.bases import to_embed_field, to_policy
from services.knowledge.api.convert.common import to_json
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.listing import cut_listing
from services.knowledge.domain.metadata import MAX_METADATA_BYTES, metadata_json
from services.knowledge.domain.models import (
    Chunk,
    Document,
    DocumentError,
    DocumentState,
    KnowledgeBaseId,
    Upload,
)

_MAX_SHOWN_PIECES = 1000
_STATES = {
    DocumentState.PENDING: document_pb2.Document.STATE_PENDING,
    DocumentState.INGESTING: document_pb2.Document.STATE_INGESTING,
    DocumentState.READY: document_pb2.Document.STATE_READY,
    DocumentState.FAILED: document_pb2.Document.STATE_FAILED,
}


def to_upload(request: knowledge_service_pb2.CreateDocumentRequest) -> Upload:
    """An upload in one message.

    Raises:
        InvalidArgumentError: a field is out of its bounds.
    """
    return Upload(
        knowledge_base_id=KnowledgeBaseId(canonical_id(request.knowledge_base_id)),
        display_name=to_text(request.display_name, field="display_name", max_bytes=1000),
        media_type=to_text(request.media_type, field="media_type", max_bytes=200),
        content=request.content,
        content_hash=hashlib.sha256(request.content).hexdigest(),
        metadata=_metadata(request.metadata, field="metadata"),
    )


def to_streamed_upload(
    header: knowledge_service_pb2.UploadDocumentHeader, content: bytes, content_hash: str
) -> Upload:
    """An upload that came in pieces.

    Raises:
        InvalidArgumentError: a field is out of its bounds.
    """
    return Upload(
        knowledge_base_id=KnowledgeBaseId(canonical_id(header.knowledge_base_id)),
        display_name=to_text(header.display_name, field="header.display_name", max_bytes=1000),
        media_type=to_text(header.media_type, field="header.media_type", max_bytes=200),
        content=content,
        content_hash=content_hash,
        metadata=_metadata(header.metadata, field="header.metadata"),
    )


def to_cut_request(request: knowledge_service_pb2.PreviewChunksRequest) -> CutRequest:
    """A content to cut.

    Raises:
        InvalidArgumentError: the overlap is half of a piece or more.
    """
    return CutRequest(
        content=request.content,
        name=clean(request.display_name) or "untitled",
        media_type=clean(request.media_type),
        policy=to_policy(request.chunking, field="chunking"),
        embed_field=to_embed_field(request.embed_field),
    )


def from_document(document: Document) -> document_pb2.Document:
    """A document on the wire."""
    return document_pb2.Document(
        id=document.id,
        knowledge_base_id=document.knowledge_base_id,
        display_name=document.display_name,
        media_type=document.media_type,
        size_bytes=document.size_bytes,
        content_hash=document.content_hash,
        state=_STATES[document.state],
        chunks_done=document.chunks_done,
        chunks_total=document.chunks_total,
        error=_from_error(document.error) if document.error else None,
        metadata=from_json(document.metadata),
        title=document.title,
        version=document.version,
        searchable_version=document.searchable_version,
        create_time=from_time(document.create_time),
        update_time=from_time(document.update_time),
    )


def from_chunk(chunk: Chunk) -> document_pb2.Chunk:
    """A chunk on the wire."""
    return document_pb2.Chunk(
        id=chunk.id,
        document_id=chunk.document_id,
        knowledge_base_id=chunk.knowledge_base_id,
        heading_path=chunk.heading_path,
        text=chunk.text,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        ordinal=chunk.ordinal,
        token_count=chunk.token_count,
        truncated=chunk.truncated,
    )


def from_cut(cut: CutDocument) -> knowledge_service_pb2.PreviewChunksResponse:
    """A cut document, its first pieces, on the wire."""
    shown = cut_listing(cut.pieces, size=_MAX_SHOWN_PIECES, weight=_weight)
    return knowledge_service_pb2.PreviewChunksResponse(
        title=cut.title,
        metadata=from_json(cut.metadata),
        chunks=map(_from_piece, shown.items),
        chunk_count=len(cut.pieces),
    )


def _metadata(struct: Struct, *, field: str) -> dict[str, Json]:
    metadata = to_json(struct, field=field)
    if len(metadata_json(metadata).encode()) > MAX_METADATA_BYTES:
        raise InvalidArgumentError.of_field(
            field, f"must be at most {MAX_METADATA_BYTES} bytes as JSON"
        )
    return metadata


def _from_error(error: DocumentError) -> document_pb2.DocumentError:
    return document_pb2.DocumentError(
        reason=error.reason,
        message=error.message,
        chunks=[
            document_pb2.FailedChunk(
                heading_path=chunk.heading_path,
                start_line=chunk.start_line,
                end_line=chunk.end_line,
            )
            for chunk in error.chunks
        ],
    )


def _from_piece(piece: Piece) -> document_pb2.PreviewedChunk:
    return document_pb2.PreviewedChunk(
        heading_path=piece.heading_path,
        text=piece.text,
        embedded_text=piece.embed_text,
        start_line=piece.start_line,
        end_line=piece.end_line,
        token_count=piece.token_count,
    )


def _weight(piece: Piece) -> int:
    texts = (piece.text, piece.embed_text, *piece.heading_path)
    return sum(len(text.encode()) for text in texts) + 64
