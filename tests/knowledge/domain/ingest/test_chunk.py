from typing import Any

import pytest

from services.knowledge.domain.ingest.chunk import chunk_sections
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.ingest.sections import MAX_HEADING_CHARS, build_sections


def chunk(
    text: str,
    max_tokens: int = 200,
    *,
    field: EmbedField = EmbedField.TITLE_AND_CONTENT,
    title: str = "notes.md",
    lead: str = "",
) -> tuple[Piece, ...]:
    """The pieces of a text, counted in characters."""
    lines = text.split("\n")
    return chunk_sections(
        build_sections(lines, parse_blocks(lines)),
        ChunkPolicy(max_tokens),
        count_tokens=len,
        embed_field=field,
        title=title,
        lead=lead,
    )


def embedded(text: str, max_tokens: int = 200, **options: Any) -> list[str]:
    return [piece.embed_text for piece in chunk(text, max_tokens, **options)]


class TestSections:
    def test_one_that_fits_is_one_piece(self) -> None:
        (piece,) = chunk("# A\n\none\n\n- two\n- three\n\n```\nfour\n```")

        assert piece == Piece(
            heading_path=("A",),
            text="one\n\n- two\n- three\n\n```\nfour\n```",
            embed_text="A\none\n\n- two\n- three\n\n```\nfour\n```",
            start_line=3,
            end_line=10,
            section_ordinal=0,
            piece_ordinal=0,
            token_count=34,
        )

    def test_path_and_text_may_fill_the_budget_to_the_last_token(self) -> None:
        assert len(chunk("# Path\n\n" + "x" * 13, 18)) == 1
        assert len(chunk("# Path\n\n" + "x" * 13, 17)) > 1

    def test_a_longer_one_is_divided_and_numbered(self) -> None:
        pieces = chunk("# A\n\none two three\n\nfour five six\n\n# B\n\nseven", 20)

        assert [(each.section_ordinal, each.piece_ordinal) for each in pieces] == [
            (0, 0),
            (0, 1),
            (1, 2),
        ]
        assert [(each.start_line, each.end_line) for each in pieces] == [(3, 3), (5, 5), (9, 9)]

    def test_equal_paths_stay_apart(self) -> None:
        pieces = chunk("# A\n\none\n\n# A\n\ntwo")

        assert [(each.heading_path, each.text) for each in pieces] == [
            (("A",), "one"),
            (("A",), "two"),
        ]


class TestSectionsWithoutText:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("# A", ["A"]),
            ("# A\n\n## B", ["A > B"]),
            ("# A\n\n## B\n\n## C", ["A > B", "A > C"]),
            ("# A\n\n## B\n\ntext", ["A > B\ntext"]),
            ("# A\n\n## B\n\ntext\n\n# C", ["A > B\ntext", "C"]),
            ("# A\n\ntext\n\n## B", ["A\ntext", "A > B"]),
            ("# A\n\n##\n\ntext", ["A\ntext"]),
            ("# A\n\n##", ["A"]),
            ("#\n\n##", []),
            ("#\n\ntext", ["text"]),
            ("# A\n\n### B\n\n## C\n\ntext", ["A > B", "A > C\ntext"]),
            ("### A\n\n# B", ["A", "B"]),
            ("# A\n\u3000\n# B", ["A", "B"]),
            ("# \u200b\n\n# B", ["B"]),
        ],
    )
    def test_their_headings_are_embedded_once_below_or_alone(
        self, text: str, expected: list[str]
    ) -> None:
        assert expected == embedded(text)

    def test_the_piece_holds_the_heading_and_no_text_of_its_own(self) -> None:
        (piece,) = chunk("\n# A\n\n## The\nB\n---\n".replace("## The", "The"))[1:] or chunk("# B")

        assert (piece.text, piece.own_text, piece.head_chars) == (
            piece.heading_path[-1],
            "",
            len(piece.text),
        )

    def test_it_stands_where_the_heading_stands(self) -> None:
        (piece,) = chunk("\n\nA\nB\n===\n\n")

        assert (piece.start_line, piece.end_line, piece.text) == (3, 5, "A B")


class TestPaths:
    def test_a_long_one_is_shortened_only_if_the_section_is_divided(self) -> None:
        path = "# Alpha Beta\n\n## Gamma Delta\n\n### Epsilon\n\n"

        assert embedded(path + "text", 60) == ["Alpha Beta > Gamma Delta > Epsilon\ntext"]
        assert all(
            each.startswith("Alpha Beta > … > Epsilon\n")
            for each in embedded(path + "text " * 30, 80)[1:]
        )

    def test_headings_that_paths_leave_out_are_embedded_alone(self) -> None:
        text = "# Alpha Beta\n\n## Gamma Delta\n\n### Epsilon\n\n" + "text " * 30

        assert "Alpha Beta > Gamma Delta" in embedded(text, 80)

    def test_a_heading_longer_than_its_share_comes_first_in_pieces_of_its_own(self) -> None:
        heading = "A heading of many words that goes on and on until the end"
        pieces = chunk(f"# {heading}\n\n" + "text " * 30, 60)

        assert pieces[0].text == heading
        assert pieces[0].own_text == ""
        assert pieces[1].embed_text.startswith("A heading of many w…\n")
        assert all(each.heading_path == (heading,) for each in pieces)
        assert all(each.token_count <= 60 for each in pieces)

    def test_a_heading_of_a_book_is_whole_in_pieces_and_cut_in_paths(self) -> None:
        heading = "word " * 2000
        pieces = chunk(f"# {heading}\n\nbody\n\n## Next\n\nmore", 300)
        of_heading = [each for each in pieces if not each.own_text]

        assert heading.split() == " ".join(each.text for each in of_heading).split()
        assert all(len(part) <= MAX_HEADING_CHARS for each in pieces for part in each.heading_path)
        assert all(each.token_count <= 300 for each in pieces)
        assert [each.text for each in pieces if each.own_text] == ["body", "more"]

    @pytest.mark.parametrize("budget", [1, 2, 3, 5, 8, 12, 20])
    def test_a_path_never_crowds_the_text_out(self, budget: int) -> None:
        pieces = chunk("# A long heading\n\nsome text of words", budget)

        own = "".join(each.own_text for each in pieces)
        assert own.replace(" ", "") == "sometextofwords"
        assert all(each.token_count <= budget for each in pieces)


class TestEmbedField:
    TEXT = "Before.\n\n# A\n\none\n\n## B\n\ntwo\n\n# C"

    def test_title_and_content(self) -> None:
        assert embedded(self.TEXT) == ["Before.", "A\none", "A > B\ntwo", "C"]

    def test_title_and_content_with_a_lead_before_the_first_heading(self) -> None:
        assert embedded(self.TEXT, lead="Notes")[:2] == ["Notes\nBefore.", "A\none"]

    def test_title(self) -> None:
        assert embedded(self.TEXT, field=EmbedField.TITLE) == ["notes.md", "A", "A > B", "C"]

    def test_title_without_any(self) -> None:
        assert embedded("#\n\ntext", field=EmbedField.TITLE, title="") == ["text"]
        assert embedded("#\n\ntext", field=EmbedField.TITLE, title="t") == ["t"]

    def test_the_pieces_are_the_same_whatever_is_embedded(self) -> None:
        text = self.TEXT + "\n\n" + "A sentence of words. " * 20

        assert [each.text for each in chunk(text, 60)] == [
            each.text for each in chunk(text, 60, field=EmbedField.TITLE)
        ]

    def test_tokens_are_those_of_what_is_embedded(self) -> None:
        for field in EmbedField:
            assert all(
                len(each.embed_text) == each.token_count for each in chunk(self.TEXT, field=field)
            )

    def test_a_title_keeps_to_the_budget(self) -> None:
        assert embedded("text", 10, field=EmbedField.TITLE, title="x" * 500) == ["x" * 9 + "…"]


class TestCounting:
    def test_most_pieces_cost_one_count_or_two(self) -> None:
        asked: list[str] = []

        def count(text: str) -> int:
            asked.append(text)
            return -(-len(text) // 4)

        text = "".join(
            f"## Section {n}\n\n" + "An ordinary sentence with some words. " * (n % 60) + "\n\n"
            for n in range(100)
        )
        lines = text.split("\n")
        pieces = chunk_sections(
            build_sections(lines, parse_blocks(lines)),
            ChunkPolicy(),
            count_tokens=count,
            embed_field=EmbedField.TITLE_AND_CONTENT,
            title="",
        )

        assert len(asked) <= 2 * len(pieces)
        assert sum(map(len, asked)) <= 2 * len(text)
