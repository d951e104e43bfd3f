import pytest

from services.knowledge.domain.ingest.plain import plain_blocks


class TestPlainBlocks:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", []),
            ("\n \n\u3000\n", []),
            ("a", [(1, 1)]),
            ("\n\na\nb\n\nc\n", [(3, 4), (6, 6)]),
            ("# no heading\n===\n\n- no list", [(1, 2), (4, 4)]),
            ("a\n\u3000\xa0\nb", [(1, 1), (3, 3)]),
            ("a\x0cb\u2028c", [(1, 1)]),
        ],
    )
    def test_paragraphs_stand_between_blank_lines(
        self, text: str, expected: list[tuple[int, int]]
    ) -> None:
        blocks = plain_blocks(text.split("\n"))

        assert expected == [(block.start_line, block.end_line) for block in blocks]

    def test_lines_count_from_where_they_are_told_to(self) -> None:
        assert plain_blocks(["", "a"], first_line=5)[0].start_line == 6
