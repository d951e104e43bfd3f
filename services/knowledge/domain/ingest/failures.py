"""Why a document cannot be ingested, as its uploader is told."""

from collections.abc import Sequence

from services.common.errors import FailedPreconditionError, ServiceError
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.models import DocumentError, FailedChunk

MAX_NAMED_CHUNKS = 10
"""How many pieces an error names."""


class ChunkNotEmbeddedError(FailedPreconditionError):
    """The model fails on some pieces of the document.

    Attributes:
        chunks: the pieces at fault, the first ten of them.
    """

    reason = "CHUNK_NOT_EMBEDDED"

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.chunks = tuple(
            FailedChunk(piece.heading_path, piece.start_line, piece.end_line)
            for piece in pieces[:MAX_NAMED_CHUNKS]
        )
        places = "; ".join(_place(chunk) for chunk in self.chunks)
        count = "A piece" if len(pieces) == 1 else f"{len(pieces)} pieces"
        super().__init__(f"{count} of the document cannot be embedded: {places}.")


class TooManyChunksError(FailedPreconditionError):
    """The document would be cut into more pieces than allowed."""

    reason = "TOO_MANY_CHUNKS"

    def __init__(self, *, count: int, max_chunks: int) -> None:
        self.max_chunks = max_chunks
        super().__init__(
            f"The document makes {count} pieces; {max_chunks} are allowed. Divide it.",
            metadata={"max_chunks": str(max_chunks)},
        )


class IngestionFailedError(FailedPreconditionError):
    """Ingestion was tried as often as allowed."""

    reason = "INGESTION_FAILED"


def document_error(error: ServiceError) -> DocumentError:
    """What the document shows of an error."""
    chunks = error.chunks if isinstance(error, ChunkNotEmbeddedError) else ()
    return DocumentError(error.reason, error.message, chunks)


def _place(chunk: FailedChunk) -> str:
    path = " > ".join(chunk.heading_path)
    lines = f"lines {chunk.start_line}-{chunk.end_line}"
    return f"{path} ({lines})" if path else lines
