"""What the domain needs from the outside, each as narrow as its user needs it.

Every store method takes the viewer and touches only what that user may see; what it does not find
for that viewer is None, whether it exists or not.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.embedding import (
    Embedded,
    EmbeddedBatch,
    EmbeddingModel,
    Purpose,
    TextDigest,
    Vector,
)
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest
from services.knowledge.domain.ingest.job import IngestedDocument, IngestJob, PutBack
from services.knowledge.domain.models import (
    AcceptedRequest,
    BaseChanges,
    Chunk,
    DeletionReceipt,
    Document,
    DocumentError,
    DocumentId,
    EmbeddingSpace,
    FreshIds,
    KnowledgeBase,
    KnowledgeBaseId,
    Upload,
)
from services.knowledge.domain.search.scope import Nearby, SearchScope


class BaseStore(Protocol):
    """Keeps knowledge bases."""

    async def create_base(
        self, base: KnowledgeBase, *, request: AcceptedRequest | None
    ) -> KnowledgeBase:
        """Store a new base, and with it what the request id stands for from now on.

        Raises:
            RequestIdReusedError: the id stands for something else.
        """
        ...

    async def requested_base(
        self, request: AcceptedRequest, *, viewer: Identity
    ) -> KnowledgeBaseId | None:
        """The base that this very request made before.

        Raises:
            RequestIdReusedError: the id stands for something else.
        """
        ...

    async def get_base(self, base_id: KnowledgeBaseId, *, viewer: Identity) -> KnowledgeBase | None:
        """One base."""
        ...

    async def get_bases(
        self, base_ids: Sequence[KnowledgeBaseId], *, viewer: Identity
    ) -> list[KnowledgeBase]:
        """Those of the bases that the viewer may see, in no order."""
        ...

    async def list_bases(
        self, *, viewer: Identity, display_name: str, page: Page
    ) -> list[KnowledgeBase]:
        """Bases in the order of their ids.

        Args:
            viewer: sees the bases.
            display_name: keeps bases of exactly this name; empty keeps all.
            page: `after` holds the id of the last base already seen.
        """
        ...

    async def update_base(
        self, base_id: KnowledgeBaseId, changes: BaseChanges, *, viewer: Identity
    ) -> KnowledgeBase | None:
        """Change settings, if the viewer may."""
        ...

    async def delete_base(
        self, base_id: KnowledgeBaseId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        """Delete a base with everything in it, in one transaction, if the viewer may."""
        ...


class DocumentStore(Protocol):
    """Keeps documents, their content and their chunks."""

    async def put_document(
        self, upload: Upload, *, ids: FreshIds, viewer: Identity, request: AcceptedRequest | None
    ) -> Document | None:
        """Store an upload and queue it, in one transaction, if the viewer may change the base.

        A new name makes a new document, other content a new version of the old one. The same
        content changes nothing, but a document that failed with it is queued again. The same
        request again gives its document as it is now.

        Raises:
            RequestIdReusedError: the request id stands for something else.
            NotFoundError: what the request made is gone.
        """
        ...

    async def get_document(self, document_id: DocumentId, *, viewer: Identity) -> Document | None:
        """One document."""
        ...

    async def base_of(self, document_id: DocumentId, *, viewer: Identity) -> KnowledgeBase | None:
        """The base a document belongs to."""
        ...

    async def list_documents(
        self, base_id: KnowledgeBaseId, *, viewer: Identity, page: Page
    ) -> list[Document]:
        """Documents of a base, in the order of their ids; `after` holds the last one seen."""
        ...

    async def delete_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        """Delete a document with its chunks, in one transaction, if the viewer may."""
        ...

    async def reingest_document(
        self, document_id: DocumentId, *, viewer: Identity
    ) -> Document | None:
        """Queue the newest upload again, if the viewer may."""
        ...


class ChunkIndex(Protocol):
    """Reads searchable chunks."""

    async def list_chunks(
        self, document_id: DocumentId, *, space: EmbeddingSpace, viewer: Identity, page: Page
    ) -> list[Chunk]:
        """Chunks of a document, by ordinal; `after` holds the last one seen."""
        ...

    async def nearest(
        self, query: Vector, *, scope: SearchScope, limit: int, viewer: Identity
    ) -> list[Nearby]:
        """The nearest chunks, exactly min(limit, all in scope); nearest first, then by id."""
        ...


class IngestQueue(Protocol):
    """Hands documents to workers; what a worker writes counts only while its claim holds.

    Every method that takes a job raises LeaseLostError once the claim no longer holds.
    """

    async def claim(self, *, lease: float) -> IngestJob | None:
        """Claim a document that waits, or whose worker died, for `lease` seconds."""
        ...

    async def renew(self, job: IngestJob, *, lease: float) -> None:
        """Hold the claim for `lease` seconds from now."""
        ...

    async def content(self, job: IngestJob) -> bytes:
        """The upload to ingest."""
        ...

    async def embedded_before(self, job: IngestJob) -> Mapping[TextDigest, Embedded]:
        """The vectors of the document's searchable chunks, by the text they stand for."""
        ...

    async def record_progress(self, job: IngestJob, *, done: int, total: int) -> None:
        """Show how many pieces are embedded."""
        ...

    async def finish(self, job: IngestJob, result: IngestedDocument) -> None:
        """Make the result searchable in place of what was, in one transaction."""
        ...

    async def fail(self, job: IngestJob, error: DocumentError) -> None:
        """Give the document up; what was searchable stays so."""
        ...

    async def put_back(
        self, job: IngestJob, why: PutBack, *, delay: float, error: DocumentError | None = None
    ) -> None:
        """Queue the document again, `delay` seconds from now."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors."""

    async def models(self, *, identity: Identity) -> tuple[EmbeddingModel, ...]:
        """What can be asked for.

        Raises:
            EmbeddingUnavailableError: the service cannot be asked.
        """
        ...

    async def embed(
        self, texts: Sequence[str], *, model: str, purpose: Purpose, identity: Identity
    ) -> EmbeddedBatch:
        """Embed all texts, or none.

        Raises:
            EmbeddingUnavailableError: the service or its backend is away.
            UnknownEmbeddingModelError: it has no such model.
            NotEmbeddableError: it fails on some of the texts.
        """
        ...


class Cutter(Protocol):
    """Cuts documents into pieces without holding up or endangering anything else."""

    async def cut(self, request: CutRequest) -> CutDocument:
        """Cut a document.

        Raises:
            UncuttableError: it cannot be done.
            CutterTimeoutError: it took too long.
            CutterDiedError: the cutter died while cutting it.
        """
        ...
