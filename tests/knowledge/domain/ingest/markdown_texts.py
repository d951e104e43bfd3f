"""Generated Markdown for property tests: lines of every kind behind marks of every kind."""

import re

from hypothesis import strategies as st

ATX = ["# h", "## a b ##", "#", "###### x #", "####### y", "#5 bolt", "#\tt", "# *e* `c` [l](/u)"]
SETEXT = ["===", "---", "--", "-", "=", "=-=", "  ===", " ---"]
RULES = ["***", "* * *", "_ _ _", "- - -"]
LISTS = ["- a", "* b", "+ c", "1. d", "2) e", "10. f", "- ", "*", "1.", "- - g", "-   wide"]
QUOTES = ["> q", ">", "> > r", ">x"]
FENCES = ["```", "```py", "~~~", "````", "``` a`b", "```x y", "~~~ `z`"]
HTML = ["<div>", "</div>", "<!-- c", "-->", "<pre>", "<?php", "?>", "<b>", "<x-y z='1'>", "<3"]
TABLES = ["| a | b |", "|---|---|", "| c | d |", "a | b", ":-:|:-:", "| 1 | 2 |"]
TEXT = [
    "foo",
    "bar baz",
    "*em*",
    "\\# no",
    "一段中文，没有标题。",
    "a\u2028b",
    "\u3000x",
    "x  ",
    "&amp;",
]
ODD = [
    "#\u3000y",
    "#\xa0y",
    "-\u3000x",
    ">\u3000z",
    "\x0c",
    "\xa0",
    "\u2028# z",
    "\x85",
    "x\x0b===",
    "\v",
]
CODE = ["    code", "\tcode"]
BLANK = ["", "", "", " ", "\t"]
MARKS = ["", "", "", "", " ", "  ", "> ", ">", "- ", "  - ", "1. ", "> > ", "   "]

LINES = [*ATX, *SETEXT, *RULES, *LISTS, *QUOTES, *FENCES, *HTML, *TABLES, *TEXT, *ODD, *BLANK]

_LINE = st.builds(
    lambda marks, line: "".join(marks) + line,
    st.lists(st.sampled_from(MARKS), max_size=2),
    st.sampled_from(LINES),
)
texts = st.lists(_LINE, max_size=14).map("\n".join)
"""Lines that are hard to tell apart, for outlines."""

_INDENTED = re.compile(r"^ {4}.*|.*[->.*+] {5}.*", re.MULTILINE)
comparable_texts = texts.map(lambda text: _INDENTED.sub("", text))
"""The same without lines that are indented four columns or more."""

_SENTENCES = [
    "The disk is full. Free some space, then try again; it helps!",
    "磁盘已满。请先释放一些空间，然后重试！这样做通常有用。",
    "没有标点的一行很长很长的中文文字只能在字与字之间断开而不能从中间切断任何一个字",
    "See [the guide](https://example.org/a/very/long/path?with=query) and `some code here`.",
    "Pneumonoultramicroscopicsilicovolcanoconiosis" * 2,
    "e\u0301te\u0301 👩‍👩‍👧‍👦👩‍👩‍👧‍👦 🇨🇳🇩🇪🇫🇷 नमस्ते กำ",
    "| a cell | another cell with words | 第三格 |",
    "x = compute(alpha, beta)  # comment",
    "\u3000\u3000缩进的一段。\u3000又一句。",
    "a\x85b\u2028c",
]
_LONG_LINE = st.builds(
    lambda marks, line: "".join(marks) + line,
    st.lists(st.sampled_from(MARKS), max_size=2),
    st.sampled_from([*LINES, *CODE, *_SENTENCES, *_SENTENCES]),
)
long_texts = st.lists(_LONG_LINE, max_size=40).map("\n".join)
"""The same with sentences, for division into pieces."""
