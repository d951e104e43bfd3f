"""Plain text to blocks: paragraphs between blank lines, and nothing that means anything else."""

from itertools import groupby

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.graphemes import is_blank


def plain_blocks(lines: list[str], *, first_line: int = 1) -> list[Block]:
    """The paragraphs of a plain text, in order.

    Args:
        lines: the lines of a normalised text, without their ends.
        first_line: the source line number of the first.
    """
    numbered = groupby(enumerate(lines, start=first_line), lambda line: is_blank(line[1]))
    runs = [[number for number, _ in run] for blank, run in numbered if not blank]
    return [Block(BlockKind.PARAGRAPH, run[0], run[-1]) for run in runs]
