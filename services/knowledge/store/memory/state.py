"""What the stores in memory share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.common.clock import Clock
from services.common.clock import now as wall_clock
from services.common.errors import RequestIdReusedError
from services.common.identity import Identity
from services.common.text import Json
from services.knowledge.domain.embedding import Embedded, TextDigest, Vector
from services.knowledge.domain.models import (
    AcceptedRequest,
    Chunk,
    ContentId,
    Document,
    DocumentId,
    DocumentState,
    KnowledgeBase,
    KnowledgeBaseId,
)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with what search and ingestion need of it."""

    chunk: Chunk
    embedded: Embedded
    text_digest: TextDigest

    @property
    def vector(self) -> Vector:
        """Its place in the space."""
        return self.embedded.vector


@dataclass(slots=True)
class StoredDocument:
    """A document with everything beside what callers see."""

    document: Document
    content: bytes
    content_id: ContentId
    claim_after: datetime | None
    uploaded_metadata: Mapping[str, Json]
    front_matter: Mapping[str, Json] = field(default_factory=dict)
    epoch: int = 0
    attempts: int = 0
    retries: int = 0
    generation: int = 0
    model_digest: str = ""
    chunks: tuple[StoredChunk, ...] = ()

    def queue(self, now: datetime) -> None:
        """Start the newest upload over."""
        self.document = replace(
            self.document,
            state=DocumentState.PENDING,
            chunks_done=0,
            chunks_total=0,
            error=None,
            update_time=now,
        )
        self.claim_after = now
        self.epoch += 1
        self.attempts = self.retries = 0


@dataclass(slots=True)
class MemoryState:
    """All that is stored."""

    clock: Clock = wall_clock
    bases: dict[KnowledgeBaseId, KnowledgeBase] = field(default_factory=dict)
    documents: dict[DocumentId, StoredDocument] = field(default_factory=dict)
    requests: dict[tuple[str, str, str, str], tuple[bytes, str]] = field(default_factory=dict)

    def base(self, base_id: KnowledgeBaseId, *, viewer: Identity) -> KnowledgeBase | None:
        """A base, counted, that the viewer may see."""
        base = self.bases.get(base_id)
        if base is None or not base.visible_to(viewer):
            return None
        stored = list(self.stored_in(base_id))
        return replace(
            base,
            document_count=len(stored),
            chunk_count=sum(len(each.chunks) for each in stored),
        )

    def stored(self, document_id: DocumentId, *, viewer: Identity) -> StoredDocument | None:
        """A document in a base that the viewer may see."""
        stored = self.documents.get(document_id)
        if stored is None or not self.base_of(stored).visible_to(viewer):
            return None
        return stored

    def changeable(self, document_id: DocumentId, *, viewer: Identity) -> StoredDocument | None:
        """A document in a base that the viewer may change."""
        stored = self.documents.get(document_id)
        if stored is None or not self.base_of(stored).changeable_by(viewer):
            return None
        return stored

    def base_of(self, stored: StoredDocument) -> KnowledgeBase:
        """The base a document belongs to."""
        return self.bases[stored.document.knowledge_base_id]

    def stored_in(self, base_id: KnowledgeBaseId) -> Iterator[StoredDocument]:
        """The documents of a base."""
        for stored in self.documents.values():
            if stored.document.knowledge_base_id == base_id:
                yield stored

    def find_request(self, request: AcceptedRequest, *, viewer: Identity) -> str | None:
        """The id of what this request made before.

        Raises:
            RequestIdReusedError: the id stands for something else.
        """
        digest, resource_id = self.requests.get(_key(request, viewer), (request.digest, None))
        if digest != request.digest:
            raise RequestIdReusedError(
                f"The request id {request.request_id} came before with other content."
            )
        return resource_id

    def record_request(
        self, request: AcceptedRequest, resource_id: str, *, viewer: Identity
    ) -> None:
        """Remember what a request made."""
        self.requests[_key(request, viewer)] = (request.digest, resource_id)


def _key(request: AcceptedRequest, viewer: Identity) -> tuple[str, str, str, str]:
    return viewer.tenant, viewer.user_id, request.method, request.request_id
