import time

import pytest

from services.knowledge.domain.ingest.inline import visible_text

LABELS = {"foo", "a b", "1.0.0"}


class TestVisibleText:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("plain text", "plain text"),
            ("", ""),
            ("中文标题：第一节", "中文标题：第一节"),
            ("*em* **strong** ***both***", "em strong both"),
            ("snake_case and 2 * 3", "snake_case and 2 * 3"),
            ("~~gone~~ kept", "gone kept"),
            ("`code`", "code"),
            ("`` a`b ``", "a`b"),
            ("` `", " ".strip()),
            ("`*not em*`", "*not em*"),
            ("`&amp;`", "&amp;"),
            ("`a\\`", "a\\"),
            ("`unclosed", "`unclosed"),
            ("``a` b", "``a` b"),
            ("*a `*` b*", "a * b"),
            ("\\*a\\* \\[b\\] \\` \\\\", "*a* [b] ` \\"),
            ("\\a \\é \\", "\\a \\é \\"),
            ("&amp; &lt; &copy; &#65; &#x42; &nbsp;x", "& < © A B \xa0x"),
            ("&#0; &#xD800; &#x110000;", "\ufffd \ufffd \ufffd"),
            ("&nope; &; &amp &#; &#12345678;", "&nope; &; &amp &#; &#12345678;"),
            ("a&#10;b", "a b"),
            ("[text](/url)", "text"),
            ("[text](</a b> 'title')", "text"),
            ('[*em* `c`](/u "t") end', "em c end"),
            ("[text]()", "text"),
            ("[a](b(c)d)", "a"),
            ("[a](b c)", "[a](b c)"),
            ("[a](b", "[a](b"),
            ("[a] (b)", "[a] (b)"),
            ("[foo]", "foo"),
            ("[foo][]", "foo"),
            ("[any][foo]", "any"),
            ("[A  B]", "A  B"),
            ("[bar]", "[bar]"),
            ("[bar][]", "[bar][]"),
            ("[any][bar]", "[any][bar]"),
            ("[foo][bar]", "[foo][bar]"),
            ("[1.0.0] - 2024-01-01", "1.0.0 - 2024-01-01"),
            ("\\[foo]", "[foo]"),
            ("[[foo]]", "[foo]"),
            ("[a [b](/u) c](/v)", "[a b c](/v)"),
            ("[![alt](/i)](/u)", "alt"),
            ("![alt *em* [x](/y)](/i)", "alt em x"),
            ("![foo]", "foo"),
            ("!foo ![", "!foo !["),
            ("<https://example.org/a>", "https://example.org/a"),
            ("<me@example.org>", "me@example.org"),
            ("<1 a> < b> <a@>", "<1 a> < b> <a@>"),
            ('<a name="x"></a>Title', "Title"),
            ("a <br/> b <!-- c --> d", "a  b  d"),
            ("<?php x ?>a<!DOCTYPE x>b<![CDATA[ c ]]>d", "abd"),
            ("<!--> a", "a"),
            ("a < b > c", "a < b > c"),
            ("<b", "<b"),
            ("*a <b x='*'>c", "*a c"),
            ("[a `](/u)`", "[a ](/u)"),
            ("first\nsecond", "first second"),
            ("first\\\nsecond", "first second"),
            ("*first\nsecond*", "first second"),
            ("a\u2028b\x0cc", "a b c"),
            ("a\u3000b", "a\u3000b"),
            ("Title { #anchor }", "Title { #anchor }"),
            ("C#", "C#"),
            ("a ] b [ c", "a ] b [ c"),
            ("**[link](/u)**", "link"),
            ("*[foo*]", "[foo]"),
            ("_[a_](/u)_", "a_"),
        ],
    )
    def test_is_what_a_reader_sees(self, content: str, expected: str) -> None:
        assert expected == visible_text(content, LABELS)

    def test_labels_are_none_by_default(self) -> None:
        assert visible_text("[foo]") == "[foo]"

    @pytest.mark.parametrize(
        "content",
        [
            "[" * 50_000 + "foo" + "]" * 50_000,
            "[a](" * 20_000,
            "![" * 40_000,
            "[foo" * 20_000,
            "`" * 50_000 + "a",
            "".join("`" * (n % 200 + 1) + "a" for n in range(4000)),
            "<a href='" * 15_000,
            "<!-- " * 20_000,
            "<?" * 40_000,
            "<![CDATA[" * 10_000,
            "<a@" + "b." * 40_000,
            "&amp;" * 20_000,
            "\\" * 100_000,
            "*a **b _c [d](e `f` <g " * 4000,
            "[a](<b" * 15_000,
            "[a](b 'c" * 12_000,
            "[[a](b)" * 12_000,
        ],
        ids=lambda content: content[:12],
    )
    def test_takes_linear_time_and_no_stack(self, content: str) -> None:
        begin = time.process_time()

        visible_text(content, LABELS)

        assert time.process_time() - begin < 4
