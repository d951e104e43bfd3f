"""Errors say for people what they hold for programs."""

from services.common.errors import Code
from services.knowledge.domain.errors import (
    ContentMismatchError,
    ContentTooLargeError,
    EmbeddingModelMismatchError,
    UnknownEmbeddingModelError,
    base_not_found,
    document_not_found,
)
from services.knowledge.domain.models import DocumentId, EmbeddingSpace, KnowledgeBaseId


class TestNotFound:
    def test_names_kind_and_id_and_nothing_else(self) -> None:
        error = base_not_found(KnowledgeBaseId("some-id"))

        assert error.metadata == {"resource": "knowledge_base", "id": "some-id"}
        assert error.message == "There is no knowledge base some-id."
        assert document_not_found(DocumentId("x")).metadata["resource"] == "document"


class TestContentErrors:
    def test_name_the_field_and_the_numbers(self) -> None:
        too_large = ContentTooLargeError(field="data", max_bytes=7)
        mismatch = ContentMismatchError(field="header.content_hash", expected="a", received="b")

        assert too_large.metadata == {"max_bytes": "7"}
        assert too_large.violations[0].field == "data"
        assert mismatch.metadata == {"expected": "a", "received": "b"}
        assert mismatch.violations[0].field == "header.content_hash"


class TestModelErrors:
    def test_tell_what_was_expected_and_received(self) -> None:
        dimensions = EmbeddingModelMismatchError.of_dimensions(EmbeddingSpace("m", 4), 5)
        bases = EmbeddingModelMismatchError.between_bases(
            EmbeddingSpace("m", 4), EmbeddingSpace("n", 4)
        )
        unknown = UnknownEmbeddingModelError(model="x", known=[])

        assert dimensions.code is Code.FAILED_PRECONDITION
        assert dimensions.metadata == {"model": "m", "expected": "4", "received": "5"}
        assert bases.metadata == {"model": "n", "expected": "m (4)", "received": "n (4)"}
        assert unknown.metadata == {"model": "x", "known": "none"}
