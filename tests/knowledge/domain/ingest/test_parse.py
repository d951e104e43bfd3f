import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistletoe import block_token, span_token, token

from services.knowledge.domain.ingest.blocks import BlockKind
from services.knowledge.domain.ingest.parse import parse_blocks
from tests.knowledge.domain.ingest.markdown_texts import comparable_texts, long_texts
from tests.knowledge.domain.ingest.outlines import (
    blocks,
    headings,
    reference_blocks,
    reference_headings,
    squeezed,
    titles,
)

NO_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


class TestOutline:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("# a\n\n## b\n\n# c", [(1, "a"), (2, "b"), (1, "c")]),
            ("[1.0.0]\n---\n\n[1.0.0]: /u", [(2, "1.0.0")]),
            ("# [x]\n\n> [X]: /u", [(1, "x")]),
            ("# [x]\n\n```\n[x]: /u\n```", [(1, "[x]")]),
            ("- # in a list\n\n> # in a quote\n\n# outside", [(1, "outside")]),
            ("```sh\n# install\n```\n# real", [(1, "real")]),
            ("~~~\n```\n# no\n~~~\n# real", [(1, "real")]),
            ("````\n```\n# no\n````\n# real", [(1, "real")]),
            ("```\n# never closed", []),
            ("<details>\n# no\n\n# real\n</details>", [(1, "real")]),
            ("#hashtag\n\n# real", [(1, "real")]),
            ("\\# escaped\n\n# real", [(1, "real")]),
            ("#\u3000全角空格不算\n\n# 标题", [(1, "标题")]),
            ("    # code\n\n# real", [(1, "real")]),
            ("# *Emphasis*, `code` & [link](/u)", [(1, "Emphasis, code & link")]),
        ],
    )
    def test_visible_headings_at_the_top(self, text: str, expected: list[tuple[int, str]]) -> None:
        assert expected == titles(text)

    @pytest.mark.parametrize("char", NO_LINE_ENDS)
    def test_what_ends_no_line_shifts_none(self, char: str) -> None:
        text = f"a{char}# no\n\n# b{char}c\n\nd{char}e\n===\n"

        assert headings(text) == [(3, 3, 1, "b c"), (5, 6, 1, "d e")]

    def test_lines_count_from_where_they_are_told_to(self) -> None:
        (heading, paragraph) = parse_blocks(["# a", "", "b"], first_line=10)

        assert (heading.start_line, paragraph.start_line) == (10, 12)


class TestWhereMistletoeIsWrong:
    """Inputs on which the tokens of mistletoe 1.6 give another outline than CommonMark."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("```\n```x\n# no\n```\n", []),
            ("a\n=-=\n", []),
            ("a\n---\t\n", [(2, "a")]),
            ("# ## #\n", [(1, "##")]),
            ("#\xa0a\n", []),
            ("a | b\n---\n", [(2, "a | b")]),
            ("| a | b |\n|---|---|\n# h | x\n", [(1, "h | x")]),
            ("- ```\nfoo\n===\n", [(1, "foo")]),
            ("> [a\n\n---\nb\n===\n", [(1, "b")]),
            ("<PRE>\n\n# no\n</PRE>\n", []),
            ("<script>\n\n# no\n</style>\n# h\n", [(1, "h")]),
            ("a\x0c# b\n", []),
            ("\u3000\n# h\n", [(1, "h")]),
            ("[a]: /u\nb\n===\n", [(1, "b")]),
            ("# *a <i x='*'>b\n", [(1, "*a b")]),
        ],
    )
    def test_the_outline_is_commonmark(self, text: str, expected: list[tuple[int, str]]) -> None:
        assert expected == titles(text)


class TestAgainstAnotherParser:
    """markdown-it as the judge, kept to what it reads as CommonMark 0.31.2 does.

    Left out are lines indented four columns below an open list or quote, lines below definitions,
    and links cut off inside their destination: there it differs from the reference implementation.
    """

    @settings(max_examples=600, deadline=None, derandomize=True)
    @given(comparable_texts)
    def test_headings_agree(self, text: str) -> None:
        assert squeezed(reference_headings(text)) == squeezed(headings(text))

    @settings(max_examples=600, deadline=None, derandomize=True)
    @given(comparable_texts)
    def test_blocks_and_their_lines_agree(self, text: str) -> None:
        assert reference_blocks(text) == blocks(text)

    @settings(max_examples=600, deadline=None, derandomize=True)
    @given(
        st.lists(
            st.sampled_from(
                [
                    *("*", "**", "***", "_", "__", "`", "``", "a", "b c", " ", "。", "é", "中文"),
                    *("[foo]", "[x][foo]", "[bar]", "[l](/u)", "![i](/u)", "[", "]", "(", ")", "!"),
                    *(
                        "<b>",
                        "</b>",
                        "<i x='*'>",
                        "<http://a.b/c>",
                        "<me@x.org>",
                        "<!-- c -->",
                        "<",
                    ),
                    *("&amp;", "&copy;", "&#65;", "&nope;", "&", "\\", "\\*", "\\`", "$", "“", "|"),
                ]
            ),
            max_size=12,
        ).map("".join)
    )
    def test_visible_texts_agree(self, content: str) -> None:
        text = f"# {content}\n\n[foo]: /url\n"

        assert squeezed(reference_headings(text)) == squeezed(headings(text))


class TestLines:
    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(long_texts)
    def test_every_line_with_text_is_in_one_block(self, text: str) -> None:
        found: list[int] = []
        for _, first, last in blocks(text):
            found.extend(range(first, last + 1))
        lines = text.split("\n")
        numbers = {number for number, line in enumerate(lines, start=1) if line.strip(" \t")}

        assert found == sorted(set(found))
        assert numbers <= set(found)
        assert all(lines[last - 1].strip(" \t") for _, _, last in blocks(text))


class TestIsolation:
    def test_no_state_of_mistletoe_is_touched(self) -> None:
        before = [*block_token._token_types, *span_token._token_types]

        parse_blocks(["<b>", "", "> a", "# [x](y) `z`", "", "[q]: /u"])

        assert before == [*block_token._token_types, *span_token._token_types]
        assert block_token.Paragraph.parse_setext
        assert token._root_node is None
        assert block_token.Heading.content == ""

    def test_threads_do_not_disturb_each_other(self) -> None:
        documents = [
            "# a\n\n```\n# no\n```\n\nb\n===\n" * 40,
            "> q\n\n<pre>\n\n# no\n</pre>\n\n## [x]\n\n[x]: /u\n" * 40,
            "| a |\n|---|\n| b |\n\n- c\n  - d\n\n### `e`\n" * 40,
        ]
        alone = [parse_blocks(text.split("\n")) for text in documents]
        barrier = threading.Barrier(len(documents))

        def parse_often(text: str) -> list[object]:
            barrier.wait()
            return [parse_blocks(text.split("\n")) for _ in range(15)]

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(len(documents)) as pool:
                together = list(pool.map(parse_often, documents))
        finally:
            sys.setswitchinterval(interval)

        assert [[expected] * 15 for expected in alone] == together


class TestHostileDocuments:
    @pytest.mark.parametrize(
        "text",
        [
            "# h\n\ntext\n\n" * 25_000,
            "a\n=\n" * 30_000,
            "[" * 100_000 + "]" * 100_000,
            "# " + "[" * 100_000,
            "word " * 400_000,
            "汉字" * 400_000,
            ">" * 100_000,
            "- " * 50_000 + "a",
            "\n".join("  " * n + f"- item {n}" for n in range(300)),
            "\n".join("> " * n + "x" for n in range(400)),
            "| a |\n|---|\n" + "| b |\n" * 50_000,
            "a | b\n" * 40_000,
            "```\n" * 40_000,
            "[a]: /u\n" * 20_000,
            "[a]: /u '\n" * 20_000,
            "<a href='\n" * 20_000,
            "- a\n" + "\n" * 100_000,
            "\t" * 100_000 + "a",
            "---\n" * 30_000,
        ],
        ids=lambda text: repr(text[:10]),
    )
    def test_are_read_in_linear_time(self, text: str) -> None:
        begin = time.process_time()

        parse_blocks(text.split("\n"))

        assert time.process_time() - begin < 8

    def test_deep_nesting_does_not_hurt_what_follows(self) -> None:
        deep = "\n".join("  " * n + "- x" for n in range(300))
        text = f"# before\n\n{deep}\n\n{'> ' * 10_000}y\n\n# after\n\nlast\n===\n"

        assert titles(text) == [(1, "before"), (1, "after"), (1, "last")]

    def test_a_deep_list_keeps_its_lines_in_one_block(self) -> None:
        deep = "\n".join("  " * n + "- x" for n in range(300))

        assert blocks(deep) == [(BlockKind.LIST, 1, 300)]
