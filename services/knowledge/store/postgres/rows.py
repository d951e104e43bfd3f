"""Rows to domain values, and the columns they are made of."""

import json
from typing import Final

import asyncpg

from services.common.identity import Identity
from services.common.text import Json
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.metadata import metadata_json
from services.knowledge.domain.models import (
    BaseSettings,
    BaseType,
    Chunk,
    ChunkId,
    Document,
    DocumentError,
    DocumentId,
    DocumentState,
    EmbeddingSpace,
    FailedChunk,
    KnowledgeBase,
    KnowledgeBaseId,
    Visibility,
)

FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
"""Below every id: where a list begins."""

_COLUMNS = {
    "BASE": (
        "b.id, b.tenant, b.owner_user_id, b.display_name, b.description, b.type, "
        "b.embedding_model, b.embedding_dimensions, b.embed_field, b.max_tokens, "
        "b.overlap_tokens, b.visibility, b.document_count, b.chunk_count, "
        "b.create_time, b.update_time"
    ),
    "DOCUMENT": (
        "d.id, d.knowledge_base_id, d.display_name, d.media_type, d.size_bytes, d.content_hash, "
        "d.content_id, d.state, d.chunks_done, d.chunks_total, d.error, d.metadata, "
        "d.front_matter, d.title, d.version, d.searchable_version, d.create_time, d.update_time"
    ),
    "CHUNK": (
        "c.id, c.knowledge_base_id, c.document_id, c.heading_path, c.text, c.start_line, "
        "c.end_line, c.ordinal, c.token_count, c.truncated"
    ),
}


def with_columns(statement: str) -> str:
    """The statement with BASE (of `b`), DOCUMENT (of `d`) and CHUNK (of `c`) spelled out."""
    for name, columns in _COLUMNS.items():
        statement = statement.replace(name, columns)
    return statement


def seen_by(viewer: Identity) -> tuple[str, str]:
    """The parameters $1 and $2 of every statement's condition of visibility."""
    return viewer.tenant, viewer.user_id


def changed_by(viewer: Identity) -> tuple[str, str, bool]:
    """The parameters $1 to $3 of the condition of who may change a base."""
    return viewer.tenant, viewer.user_id, viewer.is_admin


def to_base(row: asyncpg.Record) -> KnowledgeBase:
    """A base from the columns BASE."""
    return KnowledgeBase(
        id=KnowledgeBaseId(str(row["id"])),
        tenant=row["tenant"],
        owner_user_id=row["owner_user_id"],
        settings=BaseSettings(
            display_name=row["display_name"],
            description=row["description"],
            chunking=to_policy(row),
            visibility=Visibility(row["visibility"]),
        ),
        type=BaseType(row["type"]),
        space=to_space(row),
        embed_field=EmbedField(row["embed_field"]),
        document_count=row["document_count"],
        chunk_count=row["chunk_count"],
        create_time=row["create_time"],
        update_time=row["update_time"],
    )


def to_space(row: asyncpg.Record) -> EmbeddingSpace:
    """The vector space of a base."""
    return EmbeddingSpace(row["embedding_model"], row["embedding_dimensions"])


def to_policy(row: asyncpg.Record) -> ChunkPolicy:
    """How a base's documents are cut."""
    return ChunkPolicy(max_tokens=row["max_tokens"], overlap_tokens=row["overlap_tokens"])


def to_document(row: asyncpg.Record) -> Document:
    """A document from the columns DOCUMENT."""
    return Document(
        id=DocumentId(str(row["id"])),
        knowledge_base_id=KnowledgeBaseId(str(row["knowledge_base_id"])),
        display_name=row["display_name"],
        media_type=row["media_type"],
        size_bytes=row["size_bytes"],
        content_hash=row["content_hash"],
        state=DocumentState(row["state"]),
        chunks_done=row["chunks_done"],
        chunks_total=row["chunks_total"],
        error=_to_error(row["error"]),
        metadata={**json.loads(row["front_matter"]), **json.loads(row["metadata"])},
        title=row["title"] or row["display_name"],
        version=row["version"],
        searchable_version=row["searchable_version"],
        create_time=row["create_time"],
        update_time=row["update_time"],
    )


def to_chunk(row: asyncpg.Record) -> Chunk:
    """A chunk from the columns CHUNK."""
    return Chunk(
        id=ChunkId(str(row["id"])),
        knowledge_base_id=KnowledgeBaseId(str(row["knowledge_base_id"])),
        document_id=DocumentId(str(row["document_id"])),
        heading_path=tuple(row["heading_path"]),
        text=row["text"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        ordinal=row["ordinal"],
        token_count=row["token_count"],
        truncated=row["truncated"],
    )


def error_to_json(error: DocumentError | None) -> str | None:
    """A document's error as its column takes it."""
    if error is None:
        return None
    chunks: list[Json] = [
        {"heading_path": list(c.heading_path), "start_line": c.start_line, "end_line": c.end_line}
        for c in error.chunks
    ]
    return metadata_json({"reason": error.reason, "message": error.message, "chunks": chunks})


def _to_error(stored: str | None) -> DocumentError | None:
    if stored is None:
        return None
    error = json.loads(stored)
    chunks = (
        FailedChunk(tuple(c["heading_path"]), c["start_line"], c["end_line"])
        for c in error["chunks"]
    )
    return DocumentError(error["reason"], error["message"], tuple(chunks))
