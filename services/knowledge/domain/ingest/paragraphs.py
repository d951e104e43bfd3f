"""Paragraphs, and what a run of text turns out to be: a heading, definitions, a table."""

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.links import definitions
from services.knowledge.domain.ingest.reading import Lines
from services.knowledge.domain.ingest.syntax import (
    SETEXT,
    STARTERS,
    block_start,
    is_indented_code,
    text_at,
)
from services.knowledge.domain.ingest.tables import starts_table


class Paragraph:
    """Any text: a paragraph, a heading by its underline, definitions above either, a table.

    Sections 4.3, 4.7 and 4.8, and GitHub's section 4.10.
    """

    def __init__(self, labels: set[str]) -> None:
        self._labels = labels

    def start(self, line: str) -> bool:
        return text_at(line) >= 0

    def read(self, lines: Lines) -> tuple[Block, ...]:
        first = lines.line_number() + 1
        text = [next(lines).strip(" \t")]
        while (line := lines.peek()) is not None and (at := text_at(line)) >= 0:
            if not is_indented_code(line):
                if SETEXT.match(line, at) and (heading := self._heading(text, lines, first)):
                    return heading
                if line[at] in STARTERS and block_start(line, at, in_paragraph=True):
                    break
                if starts_table(text[-1], line):
                    return self._with_table(text, lines, first)
            text.append(next(lines).strip(" \t"))
        return self._blocks(text, first)

    def _heading(self, text: list[str], lines: Lines, first: int) -> tuple[Block, ...]:
        """What is above an underline, as a heading; nothing if it is definitions throughout."""
        defined = self._definitions(text)
        if defined == len(text):
            return ()
        level = 1 if "=" in next(lines) else 2
        heading = Block(
            BlockKind.HEADING,
            first + defined,
            lines.line_number(),
            level,
            "\n".join(text[defined:]),
        )
        return (*self._blocks(text[:defined], first), heading)

    def _with_table(self, text: list[str], lines: Lines, first: int) -> tuple[Block, ...]:
        """The paragraph, whose last line is the table's header, and the table."""
        header = lines.line_number()
        next(lines)
        while (line := lines.peek()) is not None and _is_row(line):
            next(lines)
        table = Block(BlockKind.TABLE, header, lines.line_number())
        return (*self._blocks(text[:-1], first), table)

    def _blocks(self, text: list[str], first: int) -> tuple[Block, ...]:
        """The definitions that the text begins with and the paragraph that is left."""
        defined = self._definitions(text)
        start, end = first + defined, first + len(text)
        head = Block(BlockKind.DEFINITIONS, first, start - 1)
        rest = Block(BlockKind.PARAGRAPH, start, end - 1)
        return (head,) * (start > first) + (rest,) * (end > start)

    def _definitions(self, text: list[str]) -> int:
        """How many lines the definitions take that the text begins with; note their labels."""
        if not text or not text[0].startswith("["):
            return 0
        paragraph = "\n".join(text)
        labels, end = definitions(paragraph)
        self._labels.update(labels)
        return len(text) if end == len(paragraph) else paragraph.count("\n", 0, end)


def _is_row(line: str) -> bool:
    """Whether a line goes on with the table above it: text that opens no other block."""
    at = text_at(line)
    return (
        at >= 0
        and not is_indented_code(line)
        and not (line[at] in STARTERS and block_start(line, at, in_paragraph=False))
    )
