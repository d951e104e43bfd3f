import pytest

from services.knowledge.domain.ingest.blocks import BlockKind
from tests.knowledge.domain.ingest.outlines import blocks, headings

P, T, D, HEADING = (
    BlockKind.PARAGRAPH,
    BlockKind.TABLE,
    BlockKind.DEFINITIONS,
    BlockKind.HEADING,
)


class TestUnderlines:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a\n=", [(1, 2, 1, "a")]),
            ("a\n-", [(1, 2, 2, "a")]),
            ("a\n   ---  ", [(1, 2, 2, "a")]),
            ("  a  \n\t b \n===", [(1, 3, 1, "a b")]),
            ("a\nb\n===\nc\n---", [(1, 3, 1, "a b"), (4, 5, 2, "c")]),
            ("a\n    ===", []),
            ("a\n= =", []),
            ("a\n=-=", []),
            ("a\n--- -", []),
            ("a\n\n===", []),
            ("# a\n===", [(1, 1, 1, "a")]),
            ("a | b\n---", [(1, 2, 2, "a | b")]),
            ("| a |\n---", [(1, 2, 2, "| a |")]),
            ("`a\n===\n`", [(1, 2, 1, "`a")]),
            ("a\\\n===", [(1, 2, 1, "a\\")]),
            ("a\n===\u3000", []),
            ("a\n2. b\n===", [(1, 3, 1, "a 2. b")]),
        ],
    )
    def test_make_headings(self, text: str, expected: list[tuple[int, int, int, str]]) -> None:
        assert expected == headings(text)


class TestDefinitions:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("[a]: /u", [(D, 1, 1)]),
            ("[a]: /u\n[b]:\n/v", [(D, 1, 3)]),
            ("[a]: /u\ntext", [(D, 1, 1), (P, 2, 2)]),
            ("[a]: /u\ntext\n===", [(D, 1, 1), (HEADING, 2, 3)]),
            ("[a]: /u\n===", [(D, 1, 1), (P, 2, 2)]),
            ("[a]: /u\n---", [(D, 1, 1), (BlockKind.RULE, 2, 2)]),
            ("[a]: /u\n    text", [(D, 1, 1), (P, 2, 2)]),
            ("text\n[a]: /u", [(P, 1, 2)]),
            ("[a] text\n[b]: /u", [(P, 1, 2)]),
        ],
    )
    def test_are_blocks_of_their_own(
        self, text: str, expected: list[tuple[BlockKind, int, int]]
    ) -> None:
        assert expected == blocks(text)


class TestTables:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("| a |\n|---|\n| b |", [(T, 1, 3)]),
            ("| a |\n|---|\nb\n\nc", [(T, 1, 3), (P, 5, 5)]),
            ("text\n| a |\n|---|\n| b |", [(P, 1, 1), (T, 2, 4)]),
            ("[x]: /u\n| a |\n|---|", [(D, 1, 1), (T, 2, 3)]),
            ("| a |\n|---|\n# h | x", [(T, 1, 2), (HEADING, 3, 3)]),
            ("| a |\n|---|\n| b |\n---", [(T, 1, 3), (BlockKind.RULE, 4, 4)]),
            ("| a |\n|---|\n- | b", [(T, 1, 2), (BlockKind.LIST, 3, 3)]),
            ("| a |\n|---|\n    b", [(T, 1, 2), (BlockKind.INDENTED_CODE, 3, 3)]),
            ("| a |\n|---|---|", [(P, 1, 2)]),
            ("| a |\n\n|---|", [(P, 1, 1), (P, 3, 3)]),
        ],
    )
    def test_take_their_rows(self, text: str, expected: list[tuple[BlockKind, int, int]]) -> None:
        assert expected == blocks(text)
