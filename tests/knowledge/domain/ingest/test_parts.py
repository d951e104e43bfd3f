import pytest
from hypothesis import given, settings

from services.knowledge.domain.ingest.graphemes import is_blank
from services.knowledge.domain.ingest.nodes import Body, Node, NodeKind
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.parts import MAX_DEPTH, block_nodes, parts_of
from tests.knowledge.domain.ingest.markdown_texts import long_texts


def nodes(text: str) -> tuple[Body, list[Node]]:
    body = Body(text)
    return body, block_nodes(body, parse_blocks(list(body.lines)), body_line=1)


def parts(text: str, *path: int) -> list[str]:
    """The texts of the parts of the text's only block, or of the part that the path leads to."""
    body, (node,) = nodes(text)
    for place in path:
        node = parts_of(body, node)[place]
    return [body.text[part.start : part.end] for part in parts_of(body, node)]


def framed(text: str) -> list[str]:
    """The texts of the smallest parts of the text's only block, with what they lack added."""
    body, pending = nodes(text)
    whole: list[Node] = []
    while pending:
        node = pending.pop(0)
        pending = (inner := parts_of(body, node)) + pending
        whole += [] if inner else [node]
    return [
        part.missing_head + body.text[part.start : part.end] + part.missing_tail for part in whole
    ]


class TestContainers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a\n- b\n  c\n\n- d", ["- a", "- b\n  c", "- d"]),
            ("1. a\n\n2. b", ["1. a", "2. b"]),
            ("-\n-\n  b", ["-", "-\n  b"]),
            ("-\n\n   - a\n   - b", ["-", "   - a", "   - b"]),
        ],
    )
    def test_a_list_comes_apart_between_items(self, text: str, expected: list[str]) -> None:
        assert expected == parts(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a\n\n  b\n\n  ```\n  c\n  ```", ["- a", "  b", "  ```\n  c\n  ```"]),
            ("- a\n  - b\n  - c", ["- a", "  - b\n  - c"]),
            ("-\n  a\n\n  b", ["-\n  a", "  b"]),
            ("- \ta\n\n\tb", ["- \ta", "\tb"]),
        ],
    )
    def test_an_item_comes_apart_between_its_blocks(self, text: str, expected: list[str]) -> None:
        assert expected == parts(text)

    def test_a_list_whose_mark_stands_alone_keeps_it(self) -> None:
        text = "- x\n-\n  - a\n  - b"

        assert parts(text, 1, 0) == ["-\n  - a", "  - b"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("> a\n>\n> b", ["> a\n>", "> b"]),
            ("> a\nlazy\n>\n> - b\n> - c\n>", ["> a\nlazy\n>", "> - b\n> - c\n>"]),
            (">\n> a\n> # b", [">\n> a", "> # b"]),
        ],
    )
    def test_a_quote_comes_apart_between_its_blocks(self, text: str, expected: list[str]) -> None:
        assert expected == parts(text)

    def test_items_inside_a_quote(self) -> None:
        assert parts("> a\n>\n> - b\n> - c", 1) == ["> - b", "> - c"]

    @pytest.mark.parametrize("text", ["- a b", "> a b", "-", ">"])
    def test_one_paragraph_is_prose(self, text: str) -> None:
        body, (node,) = nodes(text)

        (part,) = parts_of(body, node)

        assert (part.kind, parts_of(body, part)) == (NodeKind.PROSE, [])

    def test_what_is_too_deep_is_prose(self) -> None:
        body, (node,) = nodes("> " * (MAX_DEPTH + 5) + "a\n" + "> " * (MAX_DEPTH + 5) + "- b")
        depth = 0
        while inner := parts_of(body, node):
            (node,) = inner
            depth += 1

        assert (node.kind, depth) == (NodeKind.PROSE, MAX_DEPTH + 1)


class TestTables:
    def test_rows_know_the_header(self) -> None:
        text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"

        assert framed(text) == [
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "| a | b |\n|---|---|\n| 3 | 4 |",
        ]

    def test_a_table_in_an_item_keeps_its_marks(self) -> None:
        text = "- | a |\n  |---|\n  | 1 |\n  | 2 |"

        assert framed(text) == ["- | a |\n  |---|\n  | 1 |", "- | a |\n  |---|\n  | 2 |"]

    def test_a_table_without_rows_is_cut_as_it_is(self) -> None:
        assert framed("| a |\n|---|") == ["| a |\n|---|"]


class TestFences:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("```py\na\nb\n```", ["```py\na\n```", "```py\nb\n```"]),
            ("~~~~ x y\na\nb\n~~~~~", ["~~~~ x y\na\n~~~~~", "~~~~ x y\nb\n~~~~~"]),
            ("```\na\nb", ["```\na\n```", "```\nb"]),
            ("  ```\n  a\n  b", ["  ```\n  a\n  ```", "  ```\n  b"]),
            ("- ```\n  a\n  b", ["- ```\n  a\n  ```", "- ```\n  b"]),
            ("> ```\n> a\n> b\n> ```", ["> ```\n> a\n> ```", "> ```\n> b\n> ```"]),
            ("> ```\n> a\n> b", ["> ```\n> a\n> ```", "> ```\n> b"]),
            ("```\n```", ["```\n```"]),
            ("```", ["```"]),
            ("```\na\n```", ["```\na\n```"]),
        ],
    )
    def test_lines_know_the_fence(self, text: str, expected: list[str]) -> None:
        assert expected == framed(text)

    def test_blank_lines_part_first(self) -> None:
        assert parts("```\na\nb\n\nc\n```") == ["```\na\nb", "c\n```"]


class TestLines:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("    a\n    b\n\n    c", ["    a\n    b", "    c"]),
            ("<div>\n<p>a</p>\n</div>", ["<div>", "<p>a</p>", "</div>"]),
            ("[a]: /u\n[b]: /v", ["[a]: /u", "[b]: /v"]),
        ],
    )
    def test_code_html_and_definitions_come_apart_between_lines(
        self, text: str, expected: list[str]
    ) -> None:
        assert expected == parts(text)

    @pytest.mark.parametrize("text", ["text", "a\nb", "---"])
    def test_prose_has_no_parts(self, text: str) -> None:
        assert parts(text) == []


class TestEveryBlock:
    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(long_texts)
    def test_parts_are_the_whole_in_order(self, text: str) -> None:
        body, pending = nodes(text)
        place = 0
        while pending:
            node = pending.pop(0)
            inner = parts_of(body, node)
            if inner and not (len(inner) == 1 and inner[0].kind is node.kind and node.frame):
                assert (node.start, node.end) == (inner[0].start, inner[-1].end)
                pending = inner + pending
                continue
            assert is_blank(body.text[place : node.start])
            assert node.start < node.end
            place = node.end

        assert is_blank(body.text[place:])
