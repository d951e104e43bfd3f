import pytest

from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.sections import MAX_HEADING_CHARS, Section, build_sections


def sections(text: str, first_line: int = 1) -> list[Section]:
    lines = text.split("\n")
    return build_sections(lines, parse_blocks(lines, first_line=first_line), first_line=first_line)


def paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in sections(text)]


class TestPaths:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", []),
            ("a", [()]),
            ("# a", [("a",)]),
            ("x\n# a\n## b\n# c\n## d", [(), ("a",), ("a", "b"), ("c",), ("c", "d")]),
            ("# a\n### b\n### c\n## d", [("a",), ("a", "b"), ("a", "c"), ("a", "d")]),
            ("### a\n## b\n# c", [("a",), ("b",), ("c",)]),
            ("# a\n# a", [("a",), ("a",)]),
            ("#\n##\nx", [("",), ("", "")]),
            ("###### f\n# a\n###### g", [("f",), ("a",), ("a", "g")]),
            ("a\n=\nb\n-\nc\n=", [("a",), ("a", "b"), ("c",)]),
        ],
    )
    def test_the_parent_is_the_nearest_smaller_level(
        self, text: str, expected: list[tuple[str, ...]]
    ) -> None:
        assert expected == paths(text)

    def test_a_heading_of_a_book_is_cut_in_the_path_only(self) -> None:
        (section,) = sections("# " + "x" * 5000)

        assert section.path == ("x" * (MAX_HEADING_CHARS - 1) + "…",)
        assert section.heading == "x" * 5000


class TestBodies:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("\n\n  a  \n\n", ["  a  "]),
            ("# h\n\n\n    code\n\n  b\n\n\n# i", ["    code\n\n  b", ""]),
            ("# h\n\u3000\n# i", ["\u3000", ""]),
            ("# h\n- a\n\n\n- b\n\n# i\n\t\n", ["- a\n\n\n- b", ""]),
            ("a\n===\nb\n# c", ["b", ""]),
            ("# h\n[a]: /u\n", ["[a]: /u"]),
            ("# h\n<!-- c -->\n", ["<!-- c -->"]),
            ("# h\nlast  \n\n", ["last  "]),
            ("# h\n```\n\n\n", ["```"]),
        ],
    )
    def test_are_source_text_without_blank_ends(self, text: str, expected: list[str]) -> None:
        assert expected == [section.body for section in sections(text)]


class TestLines:
    def test_begin_with_the_heading_and_end_with_text(self) -> None:
        text = "\npreamble\n\n# a\n\nbody\n\n\nb\nc\n===\n\n## d\n\n"
        found = [(each.start_line, each.end_line, each.body_line) for each in sections(text)]

        assert found == [(2, 2, 2), (4, 6, 6), (9, 11, 11), (13, 13, 13)]

    def test_count_from_where_they_are_told_to(self) -> None:
        (section,) = sections("# a\n\nb", first_line=7)

        assert (section.start_line, section.end_line, section.body_line) == (7, 9, 9)

    def test_ordinals_are_places_in_the_document(self) -> None:
        assert [section.ordinal for section in sections("x\n# a\n# a")] == [0, 1, 2]

    def test_blocks_are_those_of_the_body(self) -> None:
        first, second = sections("# a\nb\n\n- c\n# d\n> e")

        assert [block.kind.value for block in first.blocks] == ["paragraph", "list"]
        assert [block.kind.value for block in second.blocks] == ["quote"]
