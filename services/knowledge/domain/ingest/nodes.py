"""The parts of a section's body that pieces are made of.

Every part is a stretch of the source, so pieces are too, and nothing can be lost between them.
Lines are counted from 0 at the first line of the body; places are indices in its text.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate

from services.knowledge.domain.ingest.blocks import Block


class NodeKind(Enum):
    """How a part comes apart."""

    CONTAINER = auto()
    """A list, a list item or a quote: into what it contains."""
    TABLE = auto()
    """Between rows."""
    FENCE = auto()
    """Between lines, at blank ones first."""
    LINES = auto()
    """Likewise, with nothing around them."""
    PROSE = auto()
    """It is cut, best after a sentence."""
    CODE = auto()
    """It is cut, with every space kept."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the parts of a table or fence have around them, to be read alone.

    Attributes:
        head: goes before a part that does not begin with it; ends with a line end.
        tail: goes after a part that does not end with it; begins with a line end, or is empty.
        first_line: the first line inside.
        last_line: the last line inside.
    """

    head: str
    tail: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class View:
    """Lines as they look inside a container, without its marks and indentation.

    Attributes:
        lines: the lines.
        first_line: the line of the body that the first of them is.
        depth: how many containers are around them.
    """

    lines: Sequence[str]
    first_line: int = 0
    depth: int = 0

    def __getitem__(self, line: int) -> str:
        return self.lines[line - self.first_line]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a body: whole lines, or what a cut has left of them.

    Attributes:
        kind: how it comes apart.
        first_line: its first line.
        last_line: its last line.
        start: the place where it begins.
        end: the place after its last character.
        frame: the table or fence it is a part of, once that is taken apart.
        has_head: whether it begins with the frame's own head.
        has_tail: whether it ends with the frame's own tail.
        view: how its lines look inside the containers around it.
        block: what they were read as there; None for a part of a block.
    """

    kind: NodeKind
    first_line: int
    last_line: int
    start: int
    end: int
    frame: Frame | None = None
    has_head: bool = True
    has_tail: bool = True
    view: View | None = None
    block: Block | None = None

    @property
    def missing_head(self) -> str:
        """What a piece that begins here has to repeat."""
        return self.frame.head if self.frame and not self.has_head else ""

    @property
    def missing_tail(self) -> str:
        """What a piece that ends here has to add."""
        return self.frame.tail if self.frame and not self.has_tail else ""


class Body:
    """The text of a section, by places and by lines.

    Attributes:
        text: all of it.
        lines: its lines, without their ends.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def start(self, line: int) -> int:
        """The place where a line begins."""
        return self._starts[line]

    def end(self, line: int) -> int:
        """The place after a line's last character."""
        return self._starts[line + 1] - 1

    def line_at(self, place: int) -> int:
        """The line that a place is in."""
        return bisect_right(self._starts, place) - 1
