"""ChatMind's own block tokens for mistletoe's block tokenizer.

mistletoe 1.6's tokens keep what they matched in class attributes and module lists that every thread
and every document shares, look into containers by recursion, and leave CommonMark 0.31.2 where
outlines depend on it: `` ```x `` closes a fence, a full-width space ends a `#`, `=-=` underlines a
heading, a table swallows the heading below it. These are objects made anew for each document that
only find where a block ends. What they share with mistletoe's is the protocol: `start` says whether
a line opens the block, `read` takes its lines off.
"""

from typing import Protocol

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.containers import OpenContainer
from services.knowledge.domain.ingest.paragraphs import Paragraph
from services.knowledge.domain.ingest.reading import Lines, finished
from services.knowledge.domain.ingest.syntax import (
    FENCE,
    STARTERS,
    UNTIL_BLANK,
    Start,
    atx_content,
    block_start,
    closes_fence,
    html_end,
    is_indented_code,
    text_at,
)


class BlockToken(Protocol):
    """What mistletoe's block tokenizer asks of a token type."""

    def start(self, line: str) -> bool:
        """Whether the line opens this block."""
        ...

    def read(self, lines: Lines) -> tuple[Block, ...]:
        """Take the lines of the block off, trailing blank ones excepted."""
        ...


def block_tokens(labels: set[str]) -> list[BlockToken]:
    """The token types of one document, in the order they are tried.

    Args:
        labels: filled with the normalised labels of the link reference definitions that are read.
    """
    return [
        BlankLines(),
        IndentedCode(),
        AtxHeading(),
        Fence(),
        Html(),
        Rule(),
        Container(labels),
        Paragraph(labels),
    ]


class BlankLines:
    """Lines between blocks: no block, and the commonest line after text, so tried first."""

    def start(self, line: str) -> bool:
        return text_at(line) < 0

    def read(self, lines: Lines) -> tuple[Block, ...]:
        while (line := lines.peek()) is not None and text_at(line) < 0:
            next(lines)
        return ()


class IndentedCode:
    """Lines indented four columns (section 4.4)."""

    def start(self, line: str) -> bool:
        return is_indented_code(line) and text_at(line) >= 0

    def read(self, lines: Lines) -> tuple[Block, ...]:
        first = lines.line_number() + 1
        while (line := lines.peek()) is not None and (is_indented_code(line) or text_at(line) < 0):
            next(lines)
        return (finished(BlockKind.INDENTED_CODE, lines, first),)


class AtxHeading:
    """A heading of one line that begins with `#` (section 4.2)."""

    def start(self, line: str) -> bool:
        return _opens(line, Start.ATX_HEADING)

    def read(self, lines: Lines) -> tuple[Block, ...]:
        line = next(lines)
        number = lines.line_number()
        level, text = atx_content(line, text_at(line))
        return (Block(BlockKind.HEADING, number, number, level, text),)


class Fence:
    """Code between fences, or from a fence to the end of the document (section 4.5)."""

    def start(self, line: str) -> bool:
        return _opens(line, Start.FENCE)

    def read(self, lines: Lines) -> tuple[Block, ...]:
        opening = FENCE.match(line := next(lines), text_at(line))
        fence = (opening[1] or opening[2]) if opening else ""
        first = lines.line_number()
        for line in lines:
            if not is_indented_code(line) and closes_fence(line, text_at(line), fence):
                break
        return (finished(BlockKind.FENCE, lines, first),)


class Html:
    """HTML as it stands (section 4.6)."""

    def start(self, line: str) -> bool:
        return _opens(line, Start.HTML)

    def read(self, lines: Lines) -> tuple[Block, ...]:
        opening = next(lines)
        first = lines.line_number()
        end = html_end(opening, text_at(opening), alone=True) or UNTIL_BLANK
        if not end.search(opening):
            for line in lines:
                if end.search(line) or (end is UNTIL_BLANK and text_at(line) < 0):
                    break
        return (finished(BlockKind.HTML, lines, first),)


class Rule:
    """A thematic break (section 4.1)."""

    def start(self, line: str) -> bool:
        return _opens(line, Start.RULE)

    def read(self, lines: Lines) -> tuple[Block, ...]:
        next(lines)
        return (Block(BlockKind.RULE, lines.line_number(), lines.line_number()),)


class Container:
    """A list or a block quote with everything in it (sections 5.1 to 5.3)."""

    def __init__(self, labels: set[str]) -> None:
        self._labels = labels

    def start(self, line: str) -> bool:
        return _opens(line, Start.QUOTE) or _opens(line, Start.ITEM)

    def read(self, lines: Lines) -> tuple[Block, ...]:
        container = OpenContainer(self._labels)
        first = lines.line_number() + 1
        while (line := lines.peek()) is not None and container.takes(line):
            next(lines)
        container.close()
        kind = BlockKind.LIST if container.items else BlockKind.QUOTE
        items = tuple(first + number for number in container.items)
        return (finished(kind, lines, first, items=items),)


def _opens(line: str, start: Start) -> bool:
    at = text_at(line)
    if at < 0 or line[at] not in STARTERS or is_indented_code(line):
        return False
    return block_start(line, at, in_paragraph=False) is start
