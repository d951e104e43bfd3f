import pytest

from services.agent.domain.tools.pieces import end_of_piece

BORDERS = [
    ("a" * 80 + "\n\n" + "b" * 10 + "\n" + "c" * 50, 82),
    ("a" * 80 + "\n" + "b" * 10 + ". " + "c" * 50, 81),
    ("a" * 80 + ". " + "b" * 10 + " " + "c" * 50, 82),
    ("字" * 80 + "。" + "字" * 50, 81),
    ("a" * 80 + " " + "b" * 50, 81),
    ("a" * 10 + "\n\n" + "b" * 150, 100),
    ("a" * 150, 100),
]


class TestEndOfPiece:
    @pytest.mark.parametrize(("text", "end"), BORDERS)
    def test_a_piece_ends_at_the_best_border(self, text: str, end: int) -> None:
        assert end_of_piece(text, 0, 100) == end
        assert end_of_piece("y" * 7 + text, 7, 100) == end + 7

    @pytest.mark.parametrize("length", [0, 1, 99, 100])
    def test_what_fits_is_one_piece(self, length: int) -> None:
        assert end_of_piece("a\n" * 5 + "a" * length, 10, 100) == 10 + length

    @pytest.mark.parametrize(("text", "_"), BORDERS)
    @pytest.mark.parametrize("most", [1, 2, 7, 100])
    def test_pieces_make_up_the_whole(self, text: str, _: int, most: int) -> None:
        pieces, start = list[str](), 0
        while start < len(text):
            end = end_of_piece(text, start, most)
            pieces.append(text[start:end])
            start = end

        assert "".join(pieces) == text
        assert all(0 < len(piece) <= most for piece in pieces)
