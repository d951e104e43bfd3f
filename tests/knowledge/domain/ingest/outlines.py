"""Outlines of Markdown texts: ours, and that of an independent parser."""

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.knowledge.domain.ingest.blocks import BlockKind
from services.knowledge.domain.ingest.parse import parse_blocks

Heading = tuple[int, int, int, str]
"""First line, last line, level, visible text."""

_REFERENCE = MarkdownIt("commonmark", {"maxNesting": 1000}).enable(["table", "strikethrough"])
_REFERENCE_KINDS = {
    "heading_open": BlockKind.HEADING,
    "paragraph_open": BlockKind.PARAGRAPH,
    "bullet_list_open": BlockKind.LIST,
    "ordered_list_open": BlockKind.LIST,
    "blockquote_open": BlockKind.QUOTE,
    "fence": BlockKind.FENCE,
    "code_block": BlockKind.INDENTED_CODE,
    "table_open": BlockKind.TABLE,
    "html_block": BlockKind.HTML,
    "hr": BlockKind.RULE,
}


def blocks(text: str) -> list[tuple[BlockKind, int, int]]:
    """Kind, first and last line of each top-level block."""
    parsed = parse_blocks(text.split("\n"))
    return [(block.kind, block.start_line, block.end_line) for block in parsed]


def headings(text: str) -> list[Heading]:
    """The top-level headings."""
    return [
        (block.start_line, block.end_line, block.level, block.text)
        for block in parse_blocks(text.split("\n"))
        if block.kind is BlockKind.HEADING
    ]


def titles(text: str) -> list[tuple[int, str]]:
    """Level and visible text of the top-level headings."""
    return [(level, title) for _, _, level, title in headings(text)]


def squeezed(found: list[Heading]) -> list[Heading]:
    """The headings with any white space in their texts as one space."""
    return [(first, last, level, " ".join(text.split())) for first, last, level, text in found]


def reference_blocks(text: str) -> list[tuple[BlockKind, int, int]]:
    """Kind, first and last line of each top-level block, as markdown-it has them."""
    lines = text.split("\n")
    found = []
    for token in _REFERENCE.parse(text):
        if token.level == 0 and token.type in _REFERENCE_KINDS and token.map:
            first, last = token.map[0] + 1, token.map[1]
            while last > first and not lines[last - 1].strip(" \t"):
                last -= 1
            found.append((_REFERENCE_KINDS[token.type], first, last))
    return found


def reference_headings(text: str) -> list[Heading]:
    """The top-level headings as markdown-it has them."""
    tokens = _REFERENCE.parse(text)
    return [
        (token.map[0] + 1, token.map[1], int(token.tag[1]), _visible(tokens[place + 1]))
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]


def _visible(token: Token) -> str:
    parts = []
    for child in token.children or []:
        if child.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
        elif child.type == "image":
            parts.append(_visible(child))
        elif child.type in {"text", "text_special", "code_inline"}:
            parts.append(child.content)
    return "".join(parts).strip()
