"""Where a search looks, and what it comes back with."""

from dataclasses import dataclass

from services.knowledge.domain.models import Chunk, DocumentId, EmbeddingSpace, KnowledgeBaseId


@dataclass(frozen=True, slots=True)
class Nearby:
    """A chunk near a vector.

    Attributes:
        chunk: the chunk.
        document_name: the display name of its document.
        cosine: of the angle between the two vectors, from -1 to 1.
    """

    chunk: Chunk
    document_name: str
    cosine: float


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Where to look.

    Attributes:
        space: the vector space of all the bases.
        base_ids: the bases.
        document_ids: only these documents; all where empty.
    """

    space: EmbeddingSpace
    base_ids: tuple[KnowledgeBaseId, ...]
    document_ids: tuple[DocumentId, ...] = ()
