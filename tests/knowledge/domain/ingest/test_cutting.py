"""A document in pieces, with a digest for each."""

from services.knowledge.domain.embedding import text_digest
from services.knowledge.domain.ingest.cutting import MAX_TITLE_CHARS, CutRequest, cut
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField


def a_request(content: str, *, embed_field: EmbedField = EmbedField.TITLE) -> CutRequest:
    """A document to cut."""
    return CutRequest(content.encode(), "a.md", "", ChunkPolicy(), embed_field)


class TestCut:
    def test_digests_stand_for_what_is_embedded(self) -> None:
        document = cut(a_request("# A\n\none\n\n# A\n\ntwo\n"))

        assert [piece.embed_text for piece in document.pieces] == ["A", "A"]
        assert document.digests == (text_digest("A"), text_digest("A"))

    def test_a_long_title_is_cut(self) -> None:
        document = cut(a_request("# " + "x" * 5000 + "\n\ntext"))

        assert len(document.title) == MAX_TITLE_CHARS
        assert document.title.endswith("x…")

    def test_nothing_makes_no_piece(self) -> None:
        assert cut(a_request("\n \n")).pieces == ()
