"""Generated Markdown for property tests: lines of every kind behind marks of every kind."""

import re

from hypothesis import strategies as st

_HEADINGS = ["# h", "## a b ##", "#", "###### x #", "####### y", "#5 bolt", "#\tt", "# *e* `c`"]
_UNDERLINES = ["===", "---", "--", "-", "=", "=-=", "  ===", " ---"]
_RULES = ["***", "* * *", "_ _ _", "- - -"]
_ITEMS = ["- a", "* b", "+ c", "1. d", "2) e", "10. f", "- ", "*", "1.", "- - g", "-   wide"]
_QUOTES = ["> q", ">", "> > r", ">x"]
_FENCES = ["```", "```py", "~~~", "````", "``` a`b", "```x y", "~~~ `z`"]
_HTML = ["<div>", "</div>", "<!-- c", "-->", "<pre>", "<?php", "?>", "<b>", "<x-y z='1'>", "<3"]
_ROWS = ["| a | b |", "| c | d |", "a | b", "| c | d"]
_TEXT = ["foo", "bar baz", "*em*", "\\# no", "一段中文，没有标题。", "x  ", "&amp;", "[l](/u)"]
_ODD = ["#\u3000y", "#\xa0y", "-\u3000x", ">\u3000z", "\x0c", "\xa0", "\x85", "\u3000x"]
_NO_ENDS = ["a\u2028b", "\u2028# z", "x\x0b===", "\v"]
_BLANK = ["", "", "", " ", "\t"]
_TABLES = [
    "\n| a | b |\n|:--|---|\n| c | d |\n",
    "text\n| a |\n| - |\n",
    "\na | b\n:-: | -\n",
]
_LINES = [
    *(*_HEADINGS, *_UNDERLINES, *_RULES, *_ITEMS, *_QUOTES, *_FENCES, *_HTML),
    *(*_ROWS, *_TEXT, *_ODD, *_NO_ENDS, *_BLANK),
]
_MARKS = ["", "", "", "", " ", "  ", "> ", ">", "- ", "  - ", "1. ", "> > ", "   "]
_marks = st.lists(st.sampled_from(_MARKS), max_size=2).map("".join)

texts = st.lists(
    st.sampled_from(_TABLES) | st.tuples(_marks, st.sampled_from(_LINES)).map("".join), max_size=14
).map("\n".join)
"""Lines that are hard to tell apart, for outlines."""

_INDENTED = re.compile(r"^ {4}.*|.*[->.*+] {5}.*", re.MULTILINE)
comparable_texts = texts.map(lambda text: _INDENTED.sub("", text))
"""The same without lines that are indented four columns or more."""

_CODE = ["    code", "\tcode"]
_LONG = [
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
long_texts = st.lists(
    st.sampled_from(_TABLES)
    | st.tuples(_marks, st.sampled_from([*_LINES, *_CODE, *_LONG, *_LONG])).map("".join),
    max_size=40,
).map("\n".join)
"""The same with sentences, for division into pieces."""
