"""Taking the blocks of a section apart, each by its nature, where they are too long for a piece.

A list comes apart between its items, an item or quote between its blocks, a table between its rows,
code between its lines, at blank ones first. The parts of a table know its header and delimiter rows
and those of a fence its opening and closing line, so that a piece can repeat them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.nodes import Body, Frame, Node, NodeKind, View
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.syntax import (
    FENCE,
    TAB_STOP,
    closes_fence,
    item_content,
    text_at,
)

# Containers are taken apart this deep; what is deeper is cut as prose.
MAX_DEPTH = 8

_QUOTE_MARK = re.compile(r" {0,3}> ?")
_NO_MARK = re.compile(r"[^ \t>]")
_KINDS = {
    BlockKind.LIST: NodeKind.CONTAINER,
    BlockKind.QUOTE: NodeKind.CONTAINER,
    BlockKind.TABLE: NodeKind.TABLE,
    BlockKind.FENCE: NodeKind.FENCE,
    BlockKind.INDENTED_CODE: NodeKind.LINES,
    BlockKind.HTML: NodeKind.LINES,
    BlockKind.DEFINITIONS: NodeKind.LINES,
}


def block_nodes(body: Body, blocks: Iterable[Block], *, body_line: int) -> list[Node]:
    """The blocks of a section as parts of its body, which begins on source line `body_line`."""
    view = View(body.lines)
    return [_block_node(body, view, _moved(block, -body_line)) for block in blocks]


def parts_of(body: Body, node: Node) -> list[Node]:
    """What a part is taken apart into, in order; nothing if it can only be cut."""
    view, block = node.view, node.block
    if view is None or block is None:
        return list(_line_parts(body, node)) if node.kind is NodeKind.LINES else []
    match node.kind:
        case NodeKind.CONTAINER if len(block.items) > 1:
            return list(_items(body, node, view, block))
        case NodeKind.CONTAINER:
            return _contents(body, node, view, block)
        case NodeKind.TABLE:
            return list(_rows(body, node, block))
        case NodeKind.FENCE:
            return list(_line_parts(body, _framed(body, node, view, block)))
        case NodeKind.LINES:
            return list(_line_parts(body, node))
        case _:
            return []


def _block_node(body: Body, view: View, block: Block) -> Node:
    kind = _KINDS.get(block.kind, NodeKind.PROSE)
    start, end = body.start(block.start_line), body.end(block.end_line)
    return Node(kind, block.start_line, block.end_line, start, end, view=view, block=block)


def _moved(block: Block, lines: int) -> Block:
    return replace(
        block,
        start_line=block.start_line + lines,
        end_line=block.end_line + lines,
        items=tuple(item + lines for item in block.items),
    )


def _stretched(body: Body, node: Node, first: int, last: int) -> Node:
    """The part with other first and last lines."""
    return replace(
        node, first_line=first, last_line=last, start=body.start(first), end=body.end(last)
    )


def _items(body: Body, node: Node, view: View, block: Block) -> Iterator[Node]:
    """The items of a list, each as a list of one."""
    for mark, following in zip(block.items, (*block.items[1:], node.last_line + 1), strict=True):
        last = _last_text(body, mark, following - 1)
        item = replace(block, start_line=mark, end_line=last, items=(mark,))
        first = node.first_line if mark == block.start_line else mark
        yield _stretched(body, _block_node(body, view, item), first, last)


def _contents(body: Body, node: Node, view: View, block: Block) -> list[Node]:
    """The blocks in a quote or item, with the marks between them left to the block before."""
    prose = replace(node, kind=NodeKind.PROSE)
    if view.depth >= MAX_DEPTH:
        return [prose]
    lines = [view[line] for line in range(block.start_line, node.last_line + 1)]
    inner_lines = _unquoted(lines) if block.kind is BlockKind.QUOTE else _unindented(lines)
    inner = View(inner_lines, block.start_line, view.depth + 1)
    blocks = parse_blocks(inner_lines, first_line=block.start_line)
    if len(blocks) <= 1 and all(each.kind is BlockKind.PARAGRAPH for each in blocks):
        return [prose]
    firsts = [node.first_line, *(each.start_line for each in blocks[1:])]
    lasts = [*(line - 1 for line in firsts[1:]), node.last_line]
    return [
        _stretched(body, _block_node(body, inner, each), first, _last_text(body, first, last))
        for each, first, last in zip(blocks, firsts, lasts, strict=True)
    ]


def _unquoted(lines: Sequence[str]) -> list[str]:
    return [_QUOTE_MARK.sub("", line.expandtabs(TAB_STOP), count=1) for line in lines]


def _unindented(lines: Sequence[str]) -> list[str]:
    first = lines[0].expandtabs(TAB_STOP)
    width = item_content(first, text_at(first))
    rest = (line.expandtabs(TAB_STOP) for line in lines[1:])
    return [
        first[width:],
        *(line[width:] if text_at(line[:width]) < 0 else line.lstrip(" ") for line in rest),
    ]


def _rows(body: Body, node: Node, block: Block) -> Iterator[Node]:
    """The rows of a table; the first has the header and delimiter rows above it."""
    header, first_row = block.start_line, block.start_line + 2
    if first_row > block.end_line:
        yield replace(node, kind=NodeKind.CODE)
        return
    head = body.text[body.start(header) : body.start(first_row)]
    frame = Frame(head, "", first_row, block.end_line)
    for row in range(first_row, block.end_line + 1):
        first = node.first_line if row == first_row else row
        last = node.last_line if row == block.end_line else row
        yield Node(
            NodeKind.PROSE,
            first,
            last,
            body.start(first),
            body.end(last),
            frame=frame,
            has_head=row == first_row,
        )


def _framed(body: Body, node: Node, view: View, block: Block) -> Node:
    """The lines of a fenced block, knowing the fence around them."""
    first, last = block.start_line, block.end_line
    opening, closing = view[first], view[last]
    found = FENCE.match(opening, text_at(opening))
    fence = (found[1] or found[2]) if found else ""
    if last > first and closes_fence(closing, text_at(closing), fence):
        tail = "\n" + body.lines[last]
        last -= 1
    else:
        source = body.lines[first]
        tail = "\n" + _NO_MARK.sub(" ", source[: source.find(fence)]) + fence
    frame = Frame(body.lines[first] + "\n", tail, first + 1, last)
    return replace(node, kind=NodeKind.LINES, frame=frame)


def _line_parts(body: Body, node: Node) -> Iterator[Node]:
    """Groups of lines with blank ones between them; single lines if there is but one group."""
    frame = node.frame
    first = max(node.first_line, frame.first_line) if frame else node.first_line
    last = min(node.last_line, frame.last_line) if frame else node.last_line
    ranges = _groups(body, first, last)
    kind = NodeKind.LINES
    if len(ranges) == 1:
        kind = NodeKind.CODE
        ranges = [(line, line) for line in range(ranges[0][0], ranges[0][1] + 1)]
    if not ranges:
        yield replace(node, kind=NodeKind.CODE)
        return
    ranges[0] = (node.first_line, ranges[0][1])
    ranges[-1] = (ranges[-1][0], node.last_line)
    for number, (start, end) in enumerate(ranges):
        yield Node(
            kind,
            start,
            end,
            body.start(start),
            body.end(end),
            frame=frame,
            has_head=node.has_head and number == 0,
            has_tail=node.has_tail and number == len(ranges) - 1,
        )


def _groups(body: Body, first: int, last: int) -> list[tuple[int, int]]:
    """The first and last line of each run of lines that are not blank."""
    by_blankness = groupby(range(first, last + 1), lambda line: text_at(body.lines[line]) < 0)
    runs = [list(run) for blank, run in by_blankness if not blank]
    return [(run[0], run[-1]) for run in runs]


def _last_text(body: Body, first: int, last: int) -> int:
    """The last line of these that is not blank."""
    while last > first and text_at(body.lines[last]) < 0:
        last -= 1
    return last
