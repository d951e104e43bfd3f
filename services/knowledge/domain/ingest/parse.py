"""Markdown to its flat outline: top-level blocks with their first and last source lines."""

from collections.abc import Callable
from dataclasses import replace

from mistletoe.block_tokenizer import tokenize_block

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.inline import visible_text
from services.knowledge.domain.ingest.tokens import BlockToken, block_tokens

# mistletoe is untyped: this is what its tokenizer takes and gives with ChatMind's tokens.
_Tokenize = Callable[
    [list[str], list[BlockToken], int], list[tuple[BlockToken, tuple[Block, ...], int]]
]
_tokenize: _Tokenize = tokenize_block


def parse_blocks(lines: list[str], *, first_line: int = 1) -> list[Block]:
    """The top-level blocks of a Markdown text, in order.

    mistletoe's tokenizer walks the lines; the tokens are ChatMind's own, made for this one call, so
    no state is shared with another thread or document. It takes linear time, does not recurse, and
    accepts any text: nesting deeper than `containers.MAX_DEPTH` is read as text.

    Args:
        lines: the lines of a normalised text, without their ends.
        first_line: the source line number of the first.
    """
    labels: set[str] = set()
    read = _tokenize(lines, block_tokens(labels), first_line)
    return [_titled(block, labels) for _, blocks, _ in read for block in blocks]


def _titled(block: Block, labels: set[str]) -> Block:
    """A heading with its visible text, which may need definitions from further down."""
    if block.kind is not BlockKind.HEADING:
        return block
    text = visible_text(block.text, labels)
    return block if text == block.text else replace(block, text=text)
