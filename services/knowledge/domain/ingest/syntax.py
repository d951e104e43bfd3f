"""What a line can begin, by CommonMark 0.31.2; section numbers are the specification's.

Every function takes a line without its end and the place of its first character that is no space.
The caller has seen to it that the line is indented less than four columns. Only space and tab are
white space here (section 2.1): a full-width or no-break space is text like any other.
"""

import re
from enum import Enum, auto

TAB_STOP = 4


class Start(Enum):
    """The blocks that a line can open, other than a paragraph, by their first characters."""

    QUOTE = auto()
    ATX_HEADING = auto()
    FENCE = auto()
    HTML = auto()
    RULE = auto()
    ITEM = auto()


# First characters worth a closer look; any other line is text.
STARTERS = frozenset(">#`~<*-_+0123456789")

ATX = re.compile(r"(#{1,6})(?=[ \t]|$)")
FENCE = re.compile(r"(`{3,})(?=[^`]*$)|(~{3,})")
SETEXT = re.compile(r"(?:=++|-++)[ \t]*+$")
ITEM = re.compile(r"(?:[-+*]|[0-9]{1,9}([.)]))(?=[ \t]|$)")
_ITEM_IN_PARAGRAPH = re.compile(r"(?:[-+*]|0{0,8}1[.)])[ \t]++[^ \t]")
_TEXT = re.compile(r"[^ \t]")
_SPACES = frozenset(" \t")
_INDENTED_CODE = re.compile(r" {4}| {0,3}\t")

_HTML_BY_NAME = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details"
    r"|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr"
    r"|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search"
    r"|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?:[ \t]|/?>|$)",
    re.IGNORECASE,
)
OPEN_TAG = (
    r"<[A-Za-z][A-Za-z0-9-]*+"
    r"(?:[ \t\n]++[A-Za-z_:][A-Za-z0-9_.:-]*+"
    r"(?:[ \t\n]*+=[ \t\n]*+(?:[^ \t\n\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?+)*+"
    r"[ \t\n]*+/?>"
)
CLOSING_TAG = r"</[A-Za-z][A-Za-z0-9-]*+[ \t\n]*+>"
_HTML_TAG_ALONE = re.compile(rf"(?:{OPEN_TAG}|{CLOSING_TAG})[ \t]*+$")
# Section 4.6: how a block of kinds 1 to 5 starts, and what its last line contains.
_HTML_UNTIL = (
    (
        re.compile(r"<(?:pre|script|style|textarea)(?:[ \t>]|$)", re.IGNORECASE),
        re.compile(r"</(?:pre|script|style|textarea)>", re.IGNORECASE),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
)
# What ends a block of kinds 6 and 7: a blank line, which no line within matches.
UNTIL_BLANK = re.compile(r"(?!)")


def text_at(line: str) -> int:
    """Where the first character stands that is no space or tab; -1 in a blank line (2.1)."""
    if line and line[0] > " ":
        return 0
    found = _TEXT.search(line)
    return found.start() if found else -1


def is_indented_code(line: str) -> bool:
    """Whether the line begins with four columns of space (section 4.4)."""
    return line[:1] in _SPACES and _INDENTED_CODE.match(line) is not None


def block_start(line: str, at: int, *, in_paragraph: bool, lazy: bool = False) -> Start | None:
    """The block that opens at this place, None for text.

    Args:
        line: the line, without its end.
        at: where its first character that is no space stands.
        in_paragraph: whether it would otherwise continue a paragraph of the same container.
        lazy: whether it would otherwise continue a paragraph in a container that it does not match.
    """
    match line[at]:
        case ">":
            return Start.QUOTE
        case "#":
            return Start.ATX_HEADING if ATX.match(line, at) else None
        case "`" | "~":
            return Start.FENCE if FENCE.match(line, at) else None
        case "<":
            return Start.HTML if html_end(line, at, alone=not (in_paragraph or lazy)) else None
        case "*" | "-" | "_" if _is_rule(line, at):
            return Start.RULE
        case _:
            pattern = _ITEM_IN_PARAGRAPH if in_paragraph else ITEM
            return Start.ITEM if pattern.match(line, at) else None


def _is_rule(line: str, at: int) -> bool:
    """Whether the rest is three or more of one character and spaces (section 4.1).

    Counting is much faster than a pattern, which tells where a line of a megabyte is tried again
    inside each of the lists that it seems to open.
    """
    marks = line.count(line[at], at)
    return marks >= 3 and marks + line.count(" ", at) + line.count("\t", at) == len(line) - at


def html_end(line: str, at: int, *, alone: bool) -> re.Pattern[str] | None:
    """What the last line of the HTML block opening here contains; None if none opens (section 4.6).

    Args:
        line: the line, without its end.
        at: where the `<` stands.
        alone: whether any complete tag alone on its line counts; it never interrupts a paragraph.
    """
    for start, end in _HTML_UNTIL:
        if start.match(line, at):
            return end
    if _HTML_BY_NAME.match(line, at) or (alone and _HTML_TAG_ALONE.match(line, at)):
        return UNTIL_BLANK
    return None


def item_content(line: str, mark: int) -> int:
    """The column where the content of the list item begins whose mark stands here (section 5.2).

    The line has its tabs expanded. What follows more than four spaces is indented code: then, and
    in an item that begins blank, the content begins one space after the mark.
    """
    found = ITEM.match(line, mark)
    after = found.end() if found else mark
    content = _TEXT.search(line, after)
    if content and content.start() - after <= TAB_STOP:
        return content.start()
    return after + 1


def closes_fence(line: str, at: int, fence: str) -> bool:
    """Whether the line closes a fence: its character, at least as many, nothing after (4.5)."""
    rest = line[at:].rstrip(" \t")
    return len(rest) >= len(fence) and rest == fence[0] * len(rest)


def atx_content(line: str, at: int) -> tuple[int, str]:
    """Level and raw content of the ATX heading that opens here (section 4.2)."""
    opened = ATX.match(line, at)
    hashes = opened[1] if opened else ""
    content = line[at + len(hashes) :].strip(" \t")
    kept = content.rstrip("#")
    if kept and kept[-1] not in " \t":
        kept = content
    return len(hashes), kept.rstrip(" \t")
