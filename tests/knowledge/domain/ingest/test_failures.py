"""What a document shows of a failure."""

from dataclasses import replace

from services.knowledge.domain.ingest.failures import (
    ChunkNotEmbeddedError,
    TooManyChunksError,
    document_error,
)
from services.knowledge.domain.models import DocumentError, FailedChunk
from tests.contracts.knowledge_stores import a_piece


class TestChunkNotEmbedded:
    def test_names_section_and_lines(self) -> None:
        piece = replace(a_piece("x"), heading_path=("A", "B"), start_line=3, end_line=7)

        error = document_error(ChunkNotEmbeddedError([piece]))

        message = "A piece of the document cannot be embedded: A > B (lines 3-7)."
        assert (
            DocumentError("CHUNK_NOT_EMBEDDED", message, (FailedChunk(("A", "B"), 3, 7),)) == error
        )

    def test_a_piece_before_any_heading_is_named_by_its_lines(self) -> None:
        error = ChunkNotEmbeddedError([replace(a_piece("x"), heading_path=())])

        assert error.message.endswith(": lines 1-1.")

    def test_names_ten_of_many_and_counts_all(self) -> None:
        error = ChunkNotEmbeddedError([a_piece(f"{i}", i) for i in range(12)])

        assert len(error.chunks) == 10
        assert error.message.startswith("12 pieces")


class TestOthers:
    def test_show_reason_and_message(self) -> None:
        error = TooManyChunksError(count=12, max_chunks=10)

        shown = document_error(error)

        assert (shown.reason, shown.chunks) == ("TOO_MANY_CHUNKS", ())
        assert shown.message == "The document makes 12 pieces; 10 are allowed. Divide it."
        assert error.metadata == {"max_chunks": "10"}
