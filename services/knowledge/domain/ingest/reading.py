"""How tokens take lines off the reader that mistletoe's block tokenizer hands them."""

from typing import Protocol

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.syntax import text_at


class Lines(Protocol):
    """The part of mistletoe's `FileWrapper` that tokens use.

    Attributes:
        lines: every line of the document.
    """

    lines: list[str]

    def __iter__(self) -> "Lines": ...

    def __next__(self) -> str: ...

    def peek(self) -> str | None:
        """The next line, which stays; None at the end."""
        ...

    def line_number(self) -> int:
        """The number of the line taken last."""
        ...

    def get_pos(self) -> int:
        """The index of the line taken last."""
        ...

    def backstep(self) -> None:
        """Put the line taken last back."""
        ...


def finished(kind: BlockKind, lines: Lines, first: int, *, items: tuple[int, ...] = ()) -> Block:
    """The block from its first line to the one taken last; trailing blank lines are put back."""
    while lines.line_number() > first and text_at(lines.lines[lines.get_pos()]) < 0:
        lines.backstep()
    return Block(kind, first, lines.line_number(), items=items)
