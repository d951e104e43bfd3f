"""Sections to pieces that fit the embedding model.

A section is one piece if it fits. A longer one is divided between its blocks, and a block that is
too long by its nature (`parts`, `boundaries`). The budget counts what is embedded: the heading path
on a line, then the text. Only a single character cluster over the whole budget can break it.

A section without text of its own becomes a piece that holds its heading, unless a section below it
carries the heading in its path: a heading alone says little and would crowd out what it introduces.
A heading too long for the path of its pieces comes before them in pieces of its own.
"""

from collections.abc import Iterator, Sequence

from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.graphemes import is_blank
from services.knowledge.domain.ingest.meter import Meter, TokenCounter
from services.knowledge.domain.ingest.nodes import Body, Node
from services.knowledge.domain.ingest.packing import Packer, Stretch
from services.knowledge.domain.ingest.parts import block_nodes
from services.knowledge.domain.ingest.paths import fitting_path, path_text
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.policy import PATH_SHARE, ChunkPolicy, EmbedField
from services.knowledge.domain.ingest.sections import Section


def chunk_sections(
    sections: Sequence[Section],
    policy: ChunkPolicy,
    *,
    count_tokens: TokenCounter,
    embed_field: EmbedField,
    title: str,
    lead: str = "",
) -> tuple[Piece, ...]:
    """The pieces of a document in order.

    Args:
        sections: of the document, in order.
        policy: how long a piece may be.
        count_tokens: the embedding model's own count of a text. It is called as seldom as possible,
            about twice for each piece, with texts about as long as a piece.
        embed_field: what of each piece is embedded.
        title: the document's; it is embedded with TITLE where there is no heading.
        lead: with TITLE_AND_CONTENT, goes before text that has no heading; may be empty.
    """
    chunker = _Chunker(policy, count_tokens, embed_field=embed_field, title=title, lead=lead)
    pieces = [list(chunker.pieces(section)) for section in sections]
    for index in _uncarried(sections, pieces):
        pieces[index] = list(chunker.heading_pieces(sections[index]))
    ordered = (piece for of_section in pieces for piece in of_section)
    return tuple(piece.numbered(place) for place, piece in enumerate(ordered))


def _uncarried(sections: Sequence[Section], pieces: Sequence[Sequence[Piece]]) -> Iterator[int]:
    """The sections without pieces whose headings no piece of a section below them is given."""
    carried = [False] * 8
    for index in range(len(sections) - 1, -1, -1):
        section, level = sections[index], sections[index].level
        below = any(carried[level + 1 :])
        alone = not pieces[index] and not below and not is_blank(section.heading)
        if alone:
            yield index
        whole = path_text(section.path)
        carries = any(piece.embed_text.startswith(whole) for piece in pieces[index])
        carried[level] = carried[level] or below or alone or carries
        carried[level + 1 :] = [False] * (7 - level)


class _Chunker:
    """Divides the sections of one document."""

    def __init__(
        self,
        policy: ChunkPolicy,
        count_tokens: TokenCounter,
        *,
        embed_field: EmbedField,
        title: str,
        lead: str,
    ) -> None:
        self._policy = policy
        self._meter = Meter(count_tokens, policy.max_tokens)
        self._embed_field = embed_field
        self._title = title
        self._lead = lead

    def pieces(self, section: Section) -> Iterator[Piece]:
        """The pieces of a section with text; none of one without."""
        if is_blank(section.body):
            return
        self._meter.forget()
        path = path_text(section.path or (self._lead,))
        prefix = f"{path}\n" if path else ""
        if path.endswith(section.heading) and self._fits(prefix + section.body):
            whole = Stretch(0, 0, len(section.body))
            yield self._piece(section, whole, section.body, prefix=prefix, end=section.end_line)
        else:
            yield from self._divided(section, self._shortened(section, prefix))

    def _fits(self, text: str) -> bool:
        return self._meter.keeps_to(self._policy.max_tokens, text)

    def _shortened(self, section: Section, prefix: str) -> str:
        """The line before every piece of a section, without more than its share of the budget."""
        share = self._policy.max_tokens // PATH_SHARE
        if len(prefix.encode()) <= share or self._meter.keeps_to(share, prefix):
            return prefix
        line = fitting_path(section.path or (self._lead,), self._meter, share)
        return f"{line}\n" if line else ""

    def _divided(self, section: Section, prefix: str) -> Iterator[Piece]:
        if not prefix.removesuffix("\n").endswith(section.heading):
            yield from self._long_heading_pieces(section)
        body = Body(section.body)
        nodes = block_nodes(body, section.blocks, body_line=section.body_line)
        for stretch in self._packer(body, nodes, prefix).stretches():
            yield self._piece(
                section,
                stretch,
                stretch.text(body),
                prefix=prefix,
                start=section.body_line + body.line_at(stretch.start),
                end=section.body_line + body.line_at(stretch.end - 1),
            )

    def _piece(
        self,
        section: Section,
        stretch: Stretch,
        text: str,
        *,
        prefix: str,
        start: int | None = None,
        end: int,
    ) -> Piece:
        embed_text = self._embed_text(section, prefix, text)
        return Piece(
            heading_path=section.path,
            text=text,
            embed_text=embed_text,
            start_line=start or section.body_line,
            end_line=end,
            section_ordinal=section.ordinal,
            piece_ordinal=0,
            token_count=self._meter.tokens(embed_text),
            head_chars=len(stretch.head),
            overlap_chars=stretch.start - stretch.overlap_start,
            tail_chars=len(stretch.tail),
        )

    def heading_pieces(self, section: Section) -> Iterator[Piece]:
        """The piece that holds nothing but a heading; several if that does not fit one."""
        self._meter.forget()
        path = path_text(section.path)
        if self._meter.fits(path) and section.heading == section.path[-1]:
            yield self._heading_piece(section, section.heading, path)
        else:
            yield from self._long_heading_pieces(section)

    def _long_heading_pieces(self, section: Section) -> Iterator[Piece]:
        above = fitting_path(section.path[:-1], self._meter, self._policy.max_tokens // PATH_SHARE)
        prefix = f"{above}\n" if above else ""
        body = Body(section.heading)
        nodes = block_nodes(body, [Block(BlockKind.PARAGRAPH, 0, 0)], body_line=0)
        for stretch in self._packer(body, nodes, prefix).stretches():
            text = stretch.text(body)
            yield self._heading_piece(section, text, prefix + text)

    def _heading_piece(self, section: Section, text: str, embed_text: str) -> Piece:
        has_body = bool(section.blocks)
        return Piece(
            heading_path=section.path,
            text=text,
            embed_text=embed_text,
            start_line=section.start_line,
            end_line=section.start_line if has_body else section.end_line,
            section_ordinal=section.ordinal,
            piece_ordinal=0,
            token_count=self._meter.tokens(embed_text),
            head_chars=len(text),
        )

    def _packer(self, body: Body, nodes: Sequence[Node], prefix: str) -> Packer:
        return Packer(
            body,
            nodes,
            prefix=prefix,
            meter=self._meter,
            overlap_tokens=self._policy.overlap_tokens,
        )

    def _embed_text(self, section: Section, prefix: str, text: str) -> str:
        if self._embed_field is EmbedField.TITLE_AND_CONTENT:
            return prefix + text
        path = section.path if path_text(section.path) else (self._title,)
        return fitting_path(path, self._meter, self._policy.max_tokens) or text
