"""Blocks to sections: each top-level heading with everything up to the next one."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.graphemes import shortened

# A longer heading is cut in the paths that name it; its whole text becomes a piece of its own.
MAX_HEADING_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Section:
    """A top-level heading with its body, or the text before the first heading.

    Attributes:
        path: the visible texts of the headings it stands under, its own last; empty before the
            first heading. Two sections may have the same path.
        level: of its heading, 1 to 6; 0 before the first heading.
        body: the source between its heading and the next, blank lines at both ends removed.
        start_line: its first source line, the heading's where it has one.
        end_line: its last source line that is not blank.
        ordinal: its place in the document, from 0.
        heading: the whole visible text of its heading.
        body_line: the source line that the body begins on.
        blocks: the blocks of the body.
    """

    path: tuple[str, ...]
    level: int
    body: str
    start_line: int
    end_line: int
    ordinal: int
    heading: str = ""
    body_line: int = 0
    blocks: tuple[Block, ...] = ()


def build_sections(
    lines: Sequence[str], blocks: Sequence[Block], *, first_line: int = 1
) -> list[Section]:
    """The sections of a document in order; the first may have no heading, any may have no body.

    The parent of a heading is the nearest earlier one of a smaller level: no level is invented and
    none is needed. There is no section for nothing before the first heading.

    Args:
        lines: the source lines that were parsed.
        blocks: what they were parsed to.
        first_line: the source line number of the first.
    """
    starts = [i for i, block in enumerate(blocks) if block.kind is BlockKind.HEADING]
    stops = [*starts, len(blocks)]
    sections: list[Section] = []
    if stops[0]:
        body = tuple(blocks[: stops[0]])
        sections.append(_section((), None, body, lines, first_line=first_line, ordinal=0))
    ancestors: list[tuple[int, str]] = []
    for start, stop in zip(starts, stops[1:], strict=True):
        heading = blocks[start]
        while ancestors and ancestors[-1][0] >= heading.level:
            ancestors.pop()
        ancestors.append((heading.level, shortened(heading.text, MAX_HEADING_CHARS)))
        path = tuple(text for _, text in ancestors)
        body = tuple(blocks[start + 1 : stop])
        sections.append(
            _section(path, heading, body, lines, first_line=first_line, ordinal=len(sections))
        )
    return sections


def _section(
    path: tuple[str, ...],
    heading: Block | None,
    blocks: tuple[Block, ...],
    lines: Sequence[str],
    *,
    first_line: int,
    ordinal: int,
) -> Section:
    if blocks:
        start, end = blocks[0].start_line, blocks[-1].end_line
        body = "\n".join(lines[start - first_line : end - first_line + 1])
    else:
        start = end = heading.end_line if heading else first_line
        body = ""
    return Section(
        path=path,
        level=heading.level if heading else 0,
        body=body,
        start_line=heading.start_line if heading else start,
        end_line=end,
        ordinal=ordinal,
        heading=heading.text if heading else "",
        body_line=start,
        blocks=blocks,
    )
