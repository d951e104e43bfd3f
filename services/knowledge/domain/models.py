"""The nouns of the service: bases, documents, chunks, and what happens to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NewType

from services.common.identity import Identity
from services.common.text import Json
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField

KnowledgeBaseId = NewType("KnowledgeBaseId", str)
DocumentId = NewType("DocumentId", str)
ChunkId = NewType("ChunkId", str)
ContentId = NewType("ContentId", str)
RequestId = NewType("RequestId", str)


class BaseType(Enum):
    """What a base holds."""

    KNOWLEDGE = "KNOWLEDGE"
    MEMORY = "MEMORY"


class Visibility(Enum):
    """Who sees and uses a base: its owner, or everyone in the tenant."""

    PRIVATE = "PRIVATE"
    TENANT = "TENANT"


class DocumentState(Enum):
    """How far the newest upload of a document has come."""

    PENDING = "PENDING"
    INGESTING = "INGESTING"
    READY = "READY"
    FAILED = "FAILED"

    @property
    def settled(self) -> bool:
        """Whether nothing more happens to the document by itself."""
        return self in {DocumentState.READY, DocumentState.FAILED}


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """Where vectors can be compared with each other.

    Attributes:
        model: the embedding model's name.
        dimensions: the length of its vectors.
    """

    model: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """What an owner decides about a base and can change later.

    Attributes:
        display_name: what people call it.
        description: tells an agent what can be found here.
        chunking: how long a piece may be.
        visibility: who sees and uses it.
    """

    display_name: str
    description: str
    chunking: ChunkPolicy
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class BaseChanges:
    """New settings of a base; None leaves a setting as it is."""

    display_name: str | None = None
    description: str | None = None
    chunking: ChunkPolicy | None = None
    visibility: Visibility | None = None


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A searchable collection in one vector space.

    Attributes:
        id: UUIDv7.
        tenant: whose data it is.
        owner_user_id: who made it.
        settings: what can change.
        type: what it holds.
        space: the vector space of its chunks.
        embed_field: what of a section is embedded.
        document_count: how many documents it holds.
        chunk_count: how many searchable chunks it holds.
        create_time: when it was made.
        update_time: when its settings last changed.
    """

    id: KnowledgeBaseId
    tenant: str
    owner_user_id: str
    settings: BaseSettings
    type: BaseType
    space: EmbeddingSpace
    embed_field: EmbedField
    create_time: datetime
    update_time: datetime
    document_count: int = 0
    chunk_count: int = 0

    def visible_to(self, viewer: Identity) -> bool:
        """Whether this user may see and search it."""
        if viewer.tenant != self.tenant:
            return False
        shared = self.settings.visibility is Visibility.TENANT
        return shared or viewer.user_id == self.owner_user_id

    def changeable_by(self, viewer: Identity) -> bool:
        """Whether this user may change it and what is in it."""
        owns = viewer.user_id == self.owner_user_id
        return self.visible_to(viewer) and (owns or viewer.is_admin)


@dataclass(frozen=True, slots=True)
class FailedChunk:
    """A piece that could not be embedded.

    Attributes:
        heading_path: its section.
        start_line: its first source line, from 1.
        end_line: its last.
    """

    heading_path: tuple[str, ...]
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class DocumentError:
    """Why a document is not ingested.

    Attributes:
        reason: an `ErrorReason` of the contract.
        message: for people.
        chunks: the pieces at fault, where there are such.
    """

    reason: str
    message: str
    chunks: tuple[FailedChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One uploaded file and the state of its ingestion.

    Attributes:
        id: UUIDv7.
        knowledge_base_id: the base it belongs to.
        display_name: its file name or path, unique in its base.
        media_type: how it is read.
        size_bytes: of the newest upload.
        content_hash: SHA-256 of the newest upload, in hexadecimal.
        state: how far the newest upload has come.
        chunks_done: its embedded pieces.
        chunks_total: its pieces; 0 until it is cut.
        error: why it failed, or what it waits for.
        metadata: the uploader's, over the front matter of what is searchable.
        title: of what is searchable; the display name until then.
        version: counts the uploads that changed the content, from 1.
        searchable_version: the version that search sees, 0 for none.
        create_time: when it was first uploaded.
        update_time: when its state last changed.
    """

    id: DocumentId
    knowledge_base_id: KnowledgeBaseId
    display_name: str
    media_type: str
    size_bytes: int
    content_hash: str
    state: DocumentState
    chunks_done: int
    chunks_total: int
    error: DocumentError | None
    metadata: Mapping[str, Json]
    title: str
    version: int
    searchable_version: int
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on its way into a base.

    Attributes:
        knowledge_base_id: where to.
        display_name: its name there.
        media_type: as declared.
        content: its bytes.
        content_hash: their SHA-256, in hexadecimal.
        metadata: to be kept with it.
    """

    knowledge_base_id: KnowledgeBaseId
    display_name: str
    media_type: str
    content: bytes
    content_hash: str
    metadata: Mapping[str, Json]

    def repeats(self, document: Document) -> bool:
        """Whether the document's newest upload was the same."""
        same_bytes = document.content_hash == self.content_hash
        return same_bytes and document.media_type == self.media_type


@dataclass(frozen=True, slots=True)
class FreshIds:
    """Ids to be used where a new row is needed."""

    document_id: DocumentId
    content_id: ContentId


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A client's request id, with what was asked under it.

    Attributes:
        method: the kind of request it counts for.
        request_id: unique for its user and method.
        digest: SHA-256 of what was asked.
    """

    method: str
    request_id: RequestId
    digest: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """One searchable piece of a document.

    Attributes:
        id: UUIDv7.
        knowledge_base_id: the base of its document.
        document_id: what it was cut from.
        heading_path: the headings above it, outermost first.
        text: its source text.
        start_line: its first source line, from 1.
        end_line: its last.
        ordinal: its place in the document, from 0.
        token_count: what the embedded text costs in the model's tokens.
        truncated: whether the model saw only its beginning.
    """

    id: ChunkId
    knowledge_base_id: KnowledgeBaseId
    document_id: DocumentId
    heading_path: tuple[str, ...]
    text: str
    start_line: int
    end_line: int
    ordinal: int
    token_count: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class DeletionReceipt:
    """What one deletion removed.

    Attributes:
        documents: how many documents.
        chunks: how many chunks with their vectors.
        delete_time: when.
    """

    documents: int
    chunks: int
    delete_time: datetime
