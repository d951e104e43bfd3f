import pytest

from services.knowledge.domain.ingest.syntax import (
    SETEXT,
    UNTIL_BLANK,
    Start,
    atx_content,
    block_start,
    closes_fence,
    html_end,
    is_indented_code,
    item_content,
    text_at,
)


class TestTextAt:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            *(("", -1), (" ", -1), (" \t ", -1), ("a", 0), ("  a", 2), ("\ta", 1)),
            *(("\u3000", 0), (" \xa0", 1), ("\x0c", 0), ("\u2028", 0), ("\x85", 0)),
        ],
    )
    def test_only_space_and_tab_are_blank(self, line: str, expected: int) -> None:
        assert expected == text_at(line)


class TestIsIndentedCode:
    @pytest.mark.parametrize("line", ["    a", "\ta", " \ta", "  \ta", "   \ta", "     a", "    "])
    def test_four_columns(self, line: str) -> None:
        assert is_indented_code(line)

    @pytest.mark.parametrize("line", ["", "a", "   a", "\u3000\u3000a", "\xa0   a", "   "])
    def test_less(self, line: str) -> None:
        assert not is_indented_code(line)


class TestBlockStart:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            *((f"{'#' * n} h", Start.ATX_HEADING) for n in range(1, 7)),
            *((line, Start.ATX_HEADING) for line in ("#", "##", "#\th", "# #", "#  ")),
            *((line, None) for line in ("####### h", "#h", "#5", "#\u3000h", "#\xa0h", "\\# h")),
            *(
                (line, Start.FENCE)
                for line in ("```", "````py", "~~~", "~~~ a`b", "``` a b", "```\ta")
            ),
            *((line, None) for line in ("``", "``` a`b", "~~", "`` ```")),
            *((line, Start.RULE) for line in ("***", "---", "___", "* * *", "-  -\t- ", "_____")),
            *((line, None) for line in ("**", "__ _a", "_ _", "+++", "===", "--")),
            *((line, Start.ITEM) for line in ("- a", "* a", "+ a", "-", "-\ta", "1. a", "1) a")),
            *((line, Start.ITEM) for line in ("123456789. a", "0. a", "* a *", "- - a", "+")),
            *((line, None) for line in ("-a", "1.a", "1234567890. a", "1 a", "-\u3000a", "a. b")),
            *((line, Start.QUOTE) for line in (">", "> a", ">a", ">>")),
            *(
                (line, Start.HTML)
                for line in ("<div>", "<DIV x", "</p", "<h1>", "<search/>", "<hr")
            ),
            *(
                (line, Start.HTML)
                for line in ("<pre", "<script>", "<STYLE>", "<textarea x>", "<!--")
            ),
            *(
                (line, Start.HTML)
                for line in ("<?php", "<!DOCTYPE", "<!a", "<![CDATA[", "<b>", "</b >")
            ),
            *((line, Start.HTML) for line in ("<x-y a='b' c=d e>", '<a href="x>y">  ', "<br/>")),
            *(
                (line, None)
                for line in ("<3", "<b> x", "<b", "<1a>", "</b x>", "<a href='>", "<!", "<!1")
            ),
            *((line, None) for line in ("<divx y", "<predef x", "text", "=", "|", "\u3000# h")),
        ],
    )
    def test_what_a_line_opens_after_a_blank_one(self, line: str, expected: Start | None) -> None:
        assert expected is block_start(line, 0, in_paragraph=False)

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            *(
                ("- a", Start.ITEM),
                ("1. a", Start.ITEM),
                ("001) a", Start.ITEM),
                ("+ a", Start.ITEM),
            ),
            *(
                ("2. a", None),
                ("0. a", None),
                ("14. a", None),
                ("-", None),
                ("*  ", None),
                ("1.", None),
            ),
            *(("<div>", Start.HTML), ("<!-- c", Start.HTML), ("<b>", None), ("</b>", None)),
            *(
                ("# h", Start.ATX_HEADING),
                ("> q", Start.QUOTE),
                ("***", Start.RULE),
                ("```", Start.FENCE),
            ),
        ],
    )
    def test_what_a_line_opens_in_a_paragraph(self, line: str, expected: Start | None) -> None:
        assert expected is block_start(line, 0, in_paragraph=True)

    @pytest.mark.parametrize(
        ("line", "expected"), [("<b>", None), ("2. a", Start.ITEM), ("-", Start.ITEM)]
    )
    def test_what_a_line_opens_where_it_would_be_lazy(
        self, line: str, expected: Start | None
    ) -> None:
        assert expected is block_start(line, 0, in_paragraph=False, lazy=True)

    def test_the_place_counts(self) -> None:
        assert block_start("  > - # h", 6, in_paragraph=False) is Start.ATX_HEADING


class TestHtmlEnd:
    @pytest.mark.parametrize(
        ("opening", "last_line", "other_line"),
        [
            ("<pre>", "a</PRE>b", "</pre >"),
            ("<script>", "</textarea>", "<script>"),
            ("<!--", "x-->y", "-- >"),
            ("<?x", "?>", "? >"),
            ("<!X", "a>b", "<!X"),
            ("<![CDATA[", "]]>", "]] >"),
        ],
    )
    def test_kinds_with_an_end_of_their_own(
        self, opening: str, last_line: str, other_line: str
    ) -> None:
        end = html_end(opening, 0, alone=False)

        assert end
        assert end.search(last_line)
        assert not end.search(other_line)

    @pytest.mark.parametrize("opening", ["<div>", "</td>", "<b>"])
    def test_other_kinds_end_at_a_blank_line(self, opening: str) -> None:
        assert UNTIL_BLANK is html_end(opening, 0, alone=True)
        assert not UNTIL_BLANK.search("")


class TestSetext:
    @pytest.mark.parametrize("line", ["=", "===", "-", "---  ", "--\t"])
    def test_underlines(self, line: str) -> None:
        assert SETEXT.match(line)

    @pytest.mark.parametrize("line", ["", "=-=", "= =", "--- -", "---a", "===\u3000", "__"])
    def test_other_lines(self, line: str) -> None:
        assert not SETEXT.match(line)


class TestClosesFence:
    @pytest.mark.parametrize(
        ("line", "fence"), [("```", "```"), ("`````", "```"), ("~~~ \t", "~~~"), ("````", "````")]
    )
    def test_the_same_character_at_least_as_often(self, line: str, fence: str) -> None:
        assert closes_fence(line, 0, fence)

    @pytest.mark.parametrize(
        ("line", "fence"),
        [
            ("``", "```"),
            ("~~~", "```"),
            ("```py", "```"),
            ("``` x", "```"),
            ("```", "````"),
            ("", "```"),
        ],
    )
    def test_nothing_else(self, line: str, fence: str) -> None:
        assert not closes_fence(line, 0, fence)


class TestAtxContent:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("# a", (1, "a")),
            ("###### a", (6, "a")),
            ("#   a   ", (1, "a")),
            ("# a #", (1, "a")),
            ("# a ##### ", (1, "a")),
            ("## a #b", (2, "a #b")),
            ("# a#", (1, "a#")),
            ("# a \\#", (1, "a \\#")),
            ("# a #\\##", (1, "a #\\##")),
            ("# #", (1, "")),
            ("# ## #", (1, "##")),
            ("#", (1, "")),
            ("### ###", (3, "")),
            ("#\ta\t#\t", (1, "a")),
            ("# \u3000a\u3000", (1, "\u3000a\u3000")),
        ],
    )
    def test_level_and_raw_text(self, line: str, expected: tuple[int, str]) -> None:
        assert expected == atx_content(line, 0)


class TestItemContent:
    @pytest.mark.parametrize(
        ("line", "mark", "expected"),
        [
            *(("- a", 0, 2), ("-   a", 0, 4), ("-    a", 0, 5), ("-     a", 0, 2), ("-", 0, 2)),
            *(("-    ", 0, 2), ("10. a", 0, 4), ("  * a", 2, 4), (">   1) a", 4, 7)),
        ],
    )
    def test_where_the_content_begins(self, line: str, mark: int, expected: int) -> None:
        assert expected == item_content(line, mark)
