"""Text of others on its way to a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from cli.plain import Plain, one_line, plain

ANY_TEXT = st.text(st.characters(exclude_categories=()))
ACTED_ON = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}


def on_a_terminal(renderable: object) -> str:
    """What would be written to a terminal without colours."""
    file = io.StringIO()
    Console(file=file, force_terminal=True, color_system=None, width=60).print(renderable)
    return file.getvalue()


class TestPlain:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("é 中文 🎉 👩‍👩‍👧 مرحبا\n\tx", "é 中文 🎉 👩‍👩‍👧 مرحبا\n\tx"),
            ("\x1b[31mred\x1b[0m", "[31mred[0m"),
            ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "]8;;http://evillink]8;;"),
            ("\x9b2J\x85\x7f\b\r\v\f", "2J"),
            ("a\x00b\ud800", "a\ufffdb\ufffd"),
            ("invoice\u202efdp.exe", "invoicefdp.exe"),
            ("\u2066a\u2069\u2028b\u2029", "ab"),
        ],
    )
    def test_only_what_a_terminal_acts_on_goes(self, text: str, expected: str) -> None:
        assert plain(text) == expected

    @given(ANY_TEXT)
    def test_nothing_of_it_is_left(self, text: str) -> None:
        assert ACTED_ON.isdisjoint(plain(text))
        assert plain(text).encode().decode() == plain(text)


class TestOneLine:
    def test_white_space_is_one_space(self) -> None:
        assert one_line("  a\n\n b\t\x1b\u3000c ") == "a b c"

    @given(ANY_TEXT)
    def test_it_is_one_line_to_everybody(self, text: str) -> None:
        assert len(one_line(text).splitlines()) <= 1


class TestPlainRenderable:
    @pytest.mark.parametrize(
        "markdown",
        [
            "<http://x/%1b[2J%07>",
            "[a](http://x/%1b[2J)",
            "&#27;[2J &#x9b;2J &#7;",
            "```\n\x1b[2J\n```",
            "# \x9b2J",
            "| a |\n| - |\n| \x1b[2J |",
            "![\x1b[2J](x)",
        ],
    )
    def test_what_markdown_decodes_is_plain_too(self, markdown: str) -> None:
        written = on_a_terminal(Plain(Markdown(markdown, hyperlinks=False)))

        assert ACTED_ON.isdisjoint(written)

    def test_without_it_a_terminal_would_be_reached(self) -> None:
        """Guards the test above: the danger is there."""
        written = on_a_terminal(Markdown("<http://x/%1b[2J>", hyperlinks=False))

        assert "\x1b[2J" in written

    def test_styles_of_our_own_stay(self) -> None:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, color_system="standard", width=60)
        console.print(Plain(Text("error", "bold red")))

        assert file.getvalue() == "\x1b[1;31merror\x1b[0m\n"

    def test_long_lines_stay_whole_where_they_are_to(self) -> None:
        file = io.StringIO()
        Console(file=file, width=10).print(Plain(Text("word " * 20)), soft_wrap=True)

        assert len(file.getvalue().splitlines()) == 1
