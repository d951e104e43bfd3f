"""How far a list or block quote reaches: the open-block algorithm of CommonMark 0.31.2, appendix.

Only the outermost container becomes a block, but where it ends depends on what is open deep inside
it: a line without its marks continues a paragraph there and nothing else. So this follows the open
containers and the open leaf line by line, without recursion and without building a tree.
"""

import re
from enum import Enum, auto

from services.knowledge.domain.ingest.links import definitions
from services.knowledge.domain.ingest.syntax import (
    FENCE,
    ITEM,
    SETEXT,
    STARTERS,
    TAB_STOP,
    UNTIL_BLANK,
    Start,
    block_start,
    closes_fence,
    html_end,
    item_content,
)
from services.knowledge.domain.ingest.tables import starts_table

# Deeper nesting is read as text. Nobody writes it; other parsers lose their stack or time on it.
MAX_DEPTH = 100

_QUOTE = 0
_SPACES = re.compile(" *")


class _Leaf(Enum):
    """The open leaf block, as far as it decides what the next line may be."""

    NONE = auto()
    PARAGRAPH = auto()
    TABLE = auto()
    FENCE = auto()
    INDENTED_CODE = auto()
    HTML = auto()


class _Line:
    """A line with its tabs expanded and a place that moves past the marks of containers.

    Attributes:
        text: the whole line.
        at: where the part begins that no container has taken.
        first: where the first character of that part stands that is no space.
        end: where the trailing spaces begin.
    """

    __slots__ = ("at", "end", "first", "text")

    def __init__(self, line: str) -> None:
        self.text = line.expandtabs(TAB_STOP)
        self.end = len(self.text.rstrip(" "))
        self.move(0)

    def move(self, at: int) -> None:
        """Let the containers take everything before this place."""
        found = _SPACES.match(self.text, at)
        self.at = at
        self.first = found.end() if found else at

    @property
    def indent(self) -> int:
        return self.first - self.at

    @property
    def blank(self) -> bool:
        return self.first >= self.end

    @property
    def rest(self) -> str:
        return self.text[self.first : self.end]


def _is_row(line: _Line, start: Start | None) -> bool:
    """Whether a line inside a table's container is one more row of it."""
    return start is None and line.indent < TAB_STOP


class OpenContainer:
    """An outermost list or block quote while it is read, line by line.

    Attributes:
        items: of a list, the number of each item's first line, counted from 0.
    """

    def __init__(self, labels: set[str]) -> None:
        """Wait for the first line; the labels of link definitions found inside go to `labels`."""
        self.items: list[int] = []
        self._labels = labels
        self._line_count = 0
        self._marker = ""
        # By how much each open list item wants its lines indented, or _QUOTE.
        self._open: list[int] = []
        self._item_is_empty = False
        self._leaf = _Leaf.NONE
        self._html_end = UNTIL_BLANK
        self._fence = ""
        self._paragraph: list[str] = []

    def takes(self, text: str) -> bool:
        """Read one more line; False if it is no part of this container, which has ended then."""
        line = _Line(text)
        matched = self._match(line)
        whole = matched == len(self._open)
        taken = (whole and self._continues_leaf(line)) or self._read(line, matched)
        self._line_count += 1
        return taken

    def close(self) -> None:
        """End the container: what is open in it is complete."""
        self._set_leaf(_Leaf.NONE)

    def _match(self, line: _Line) -> int:
        """Move past the marks of the open containers; how many of them the line continues."""
        if not line.end:
            return self._match_blank(0)
        for depth, width in enumerate(self._open):
            if width == _QUOTE:
                if line.blank or line.indent >= TAB_STOP or line.text[line.first] != ">":
                    return depth
                self._move_past_quote_mark(line)
            elif line.blank:
                return self._match_blank(depth)
            elif line.indent >= width:
                line.move(line.at + width)
            else:
                return depth
        return len(self._open)

    def _match_blank(self, depth: int) -> int:
        """How many containers a line continues that is blank from there on: items up to a quote."""
        inner = self._open[depth:]
        matched = depth + (inner.index(_QUOTE) if _QUOTE in inner else len(inner))
        return matched - (self._item_is_empty and matched == len(self._open))

    def _continues_leaf(self, line: _Line) -> bool:
        """Whether open code or HTML takes the line, whatever it says."""
        match self._leaf:
            case _Leaf.FENCE:
                if line.indent < TAB_STOP and closes_fence(line.text, line.first, self._fence):
                    self._leaf = _Leaf.NONE
                return True
            case _Leaf.HTML:
                ends_here = line.blank and self._html_end is UNTIL_BLANK
                if ends_here or self._html_end.search(line.text, line.at):
                    self._leaf = _Leaf.NONE
                return True
            case _Leaf.INDENTED_CODE:
                return line.blank or line.indent >= TAB_STOP
            case _:
                return False

    def _read(self, line: _Line, matched: int) -> bool:
        """Open the containers that the line opens below the matched ones, then read the rest."""
        in_paragraph = self._leaf is _Leaf.PARAGRAPH
        whole = matched == len(self._open)
        depth = matched
        start = None
        while not line.blank and line.indent < TAB_STOP:
            if in_paragraph and whole and self._underlines(line):
                self._set_leaf(_Leaf.NONE)
                return True
            start = self._start(line, in_paragraph=in_paragraph, whole=whole)
            if start not in (Start.QUOTE, Start.ITEM) or depth >= MAX_DEPTH:
                break
            if depth == 0 and not self._begins(line, start):
                return False
            if depth == matched:
                self._close_below(matched)
            self._push(line, start)
            depth, start, in_paragraph, whole = depth + 1, None, False, True
        if line.blank:
            return self._read_blank(depth, opened=depth > matched)
        if in_paragraph and start not in (Start.ATX_HEADING, Start.FENCE, Start.HTML, Start.RULE):
            self._continue_paragraph(line, whole=whole)
            return True
        return depth > 0 and self._read_leaf(line, start, depth)

    def _start(self, line: _Line, *, in_paragraph: bool, whole: bool) -> Start | None:
        if line.text[line.first] not in STARTERS:
            return None
        return block_start(
            line.text,
            line.first,
            in_paragraph=in_paragraph and whole,
            lazy=in_paragraph and not whole,
        )

    def _begins(self, line: _Line, start: Start) -> bool:
        """Whether a mark at the outermost level belongs to this container; note a list's item."""
        item = ITEM.match(line.text, line.first)
        marker = (item[1] or item[0]) if start is Start.ITEM and item else ">"
        if self._line_count and marker != self._marker:
            return False
        self._marker = marker
        if start is Start.ITEM:
            self.items.append(self._line_count)
        return True

    def _push(self, line: _Line, start: Start) -> None:
        """Open the container whose mark stands here and move past the mark."""
        if start is Start.QUOTE:
            self._open.append(_QUOTE)
            self._move_past_quote_mark(line)
            return
        content = item_content(line.text, line.first)
        self._open.append(content - line.at)
        line.move(content)
        self._item_is_empty = line.blank

    def _read_blank(self, depth: int, *, opened: bool) -> bool:
        if not depth:
            self._close_below(0)
            return self._marker != ">"
        if not opened:
            self._close_below(depth)
        return True

    def _continue_paragraph(self, line: _Line, *, whole: bool) -> None:
        if whole and starts_table(self._paragraph[-1], line.rest):
            self._paragraph.pop()
            self._set_leaf(_Leaf.TABLE)
        else:
            self._paragraph.append(line.rest)

    def _read_leaf(self, line: _Line, start: Start | None, depth: int) -> bool:
        """Open the leaf that the line is, inside the innermost container; always True."""
        if self._leaf is _Leaf.TABLE and depth == len(self._open) and _is_row(line, start):
            return True
        self._close_below(depth)
        self._item_is_empty = False
        if start is Start.FENCE:
            found = FENCE.match(line.text, line.first)
            self._fence = (found[1] or found[2]) if found else ""
            self._leaf = _Leaf.FENCE
        elif start is Start.HTML:
            self._html_end = html_end(line.text, line.first, alone=True) or UNTIL_BLANK
            if not self._html_end.search(line.text, line.first):
                self._leaf = _Leaf.HTML
        elif line.indent >= TAB_STOP:
            self._leaf = _Leaf.INDENTED_CODE
        elif start in (None, Start.QUOTE, Start.ITEM):
            self._leaf = _Leaf.PARAGRAPH
            self._paragraph = [line.rest]
        return True

    def _underlines(self, line: _Line) -> bool:
        """Whether the line makes a heading of the open paragraph (section 4.3)."""
        if not SETEXT.match(line.text, line.first):
            return False
        paragraph = "\n".join(self._paragraph)
        return definitions(paragraph)[1] < len(paragraph)

    def _close_below(self, depth: int) -> None:
        del self._open[depth:]
        self._item_is_empty = False
        self._set_leaf(_Leaf.NONE)

    def _set_leaf(self, leaf: _Leaf) -> None:
        """Change the open leaf; a paragraph that ends gives up its link definitions."""
        if self._paragraph and self._paragraph[0].startswith("["):
            self._labels.update(definitions("\n".join(self._paragraph))[0])
        self._paragraph = []
        self._leaf = leaf

    @staticmethod
    def _move_past_quote_mark(line: _Line) -> None:
        after = line.first + 1
        line.move(after + line.text.startswith(" ", after))
