from services.knowledge.domain.ingest.pieces import Piece

PIECE = Piece(
    heading_path=("a",),
    text="head\nrepeated own\ntail",
    embed_text="a\nhead\nrepeated own\ntail",
    start_line=3,
    end_line=4,
    section_ordinal=1,
    piece_ordinal=0,
    token_count=9,
    head_chars=5,
    overlap_chars=9,
    tail_chars=5,
)


class TestPiece:
    def test_own_text_is_without_what_is_repeated(self) -> None:
        assert PIECE.own_text == "own"

    def test_numbering_changes_nothing_else(self) -> None:
        numbered = PIECE.numbered(7)

        assert numbered.piece_ordinal == 7
        assert numbered.numbered(0) == PIECE
