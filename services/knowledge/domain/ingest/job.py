"""What a worker claims, and what it returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from services.common.identity import Identity
from services.common.text import Json
from services.knowledge.domain.embedding import Embedded, TextDigest
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.models import (
    ChunkId,
    ContentId,
    DocumentId,
    EmbeddingSpace,
    KnowledgeBaseId,
)


class LeaseLostError(Exception):
    """The claim no longer holds: another worker has it, there is a newer upload, or it is gone."""


@dataclass(frozen=True, slots=True)
class IngestJob:
    """A claimed document.

    Attributes:
        document_id: the document.
        knowledge_base_id: its base.
        content_id: the bytes to ingest.
        display_name: its name.
        media_type: how to read it.
        space: where its vectors belong.
        embed_field: what of a section to embed.
        chunking: how long a piece may be.
        owner: for whom it is embedded.
        epoch: counts the claims; a write under an older one is refused.
        attempts: claims, this one included, less those that were handed back in order.
        retries: how often it was put back because the embedding service was away.
        generation: of the chunks that are searchable now.
        model_digest: of the weights those were embedded with; empty where unknown.
    """

    document_id: DocumentId
    knowledge_base_id: KnowledgeBaseId
    content_id: ContentId
    display_name: str
    media_type: str
    space: EmbeddingSpace
    embed_field: EmbedField
    chunking: ChunkPolicy
    owner: Identity
    epoch: int
    attempts: int
    retries: int
    generation: int
    model_digest: str


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A piece with its vector, to be stored.

    Attributes:
        id: UUIDv7.
        piece: the piece.
        embedded: its vector.
        text_digest: of the text that was embedded.
    """

    id: ChunkId
    piece: Piece
    embedded: Embedded
    text_digest: TextDigest


@dataclass(frozen=True, slots=True)
class IngestedDocument:
    """What becomes searchable at once.

    Attributes:
        title: what the document is called.
        metadata: its front matter.
        model_digest: of the weights it was embedded with; empty where unknown.
        chunks: all of it.
    """

    title: str
    metadata: Mapping[str, Json]
    model_digest: str
    chunks: tuple[NewChunk, ...]


class PutBack(Enum):
    """Why a claimed document goes back into the queue, which decides what is counted."""

    HANDED_BACK = "the worker is shutting down"
    CRASHED = "ingesting it crashed"
    OUTAGE = "the embedding service is away"
