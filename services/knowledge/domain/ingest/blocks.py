"""The flat outline of a document: its top-level blocks and the source lines they take."""

from dataclasses import dataclass
from enum import Enum


class BlockKind(Enum):
    """What a top-level block is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST = "list"
    QUOTE = "quote"
    FENCE = "fence"
    INDENTED_CODE = "indented_code"
    TABLE = "table"
    HTML = "html"
    RULE = "rule"
    DEFINITIONS = "definitions"


@dataclass(frozen=True, slots=True)
class Block:
    """One top-level block.

    Attributes:
        kind: what it is.
        start_line: its first source line, from 1.
        end_line: its last source line that is not blank.
        level: of a heading, 1 to 6; 0 for any other block.
        text: of a heading, its visible text; empty for any other block.
        items: of a list, the first line of each item.
    """

    kind: BlockKind
    start_line: int
    end_line: int
    level: int = 0
    text: str = ""
    items: tuple[int, ...] = ()
