"""The whole line, from an upload to its pieces, in two steps.

`prepare` reads the document; `chunk_document` divides it. The first alone tells a caller at once
whether an upload can be read, the second needs to know the embedding model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.common.text import Json, clean
from services.knowledge.domain.ingest.blocks import Block, BlockKind
from services.knowledge.domain.ingest.chunk import chunk_sections
from services.knowledge.domain.ingest.decode import decode
from services.knowledge.domain.ingest.front_matter import FrontMatter, read_front_matter
from services.knowledge.domain.ingest.graphemes import is_blank
from services.knowledge.domain.ingest.media_type import Syntax, parse_media_type
from services.knowledge.domain.ingest.meter import TokenCounter
from services.knowledge.domain.ingest.normalise import lines_of, normalise
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.plain import plain_blocks
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.ingest.sections import Section, build_sections


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document that has been read.

    Attributes:
        title: the front matter's, else the first level-1 heading, else the name.
        metadata: the front matter.
        sections: in order; none if the document is blank.
    """

    title: str
    metadata: Mapping[str, Json]
    sections: tuple[Section, ...]


def prepare(content: bytes, *, name: str, media_type: str = "text/markdown") -> PreparedDocument:
    """Read an upload.

    Args:
        content: the bytes as uploaded.
        name: the document's file name.
        media_type: as declared; it may name a charset, such as `text/markdown; charset=gbk`.

    Raises:
        UnsupportedMediaTypeError: it is no text that can be read.
        UnknownCharsetError: the declared charset is unknown.
        InvalidEncodingError: the content is not text in that charset.
    """
    name = clean(name)
    kind = parse_media_type(media_type, name=name, field="media_type")
    text = normalise(decode(content, kind.charset, document=name))
    front = read_front_matter(text) if kind.syntax is Syntax.MARKDOWN else FrontMatter()
    lines = lines_of(text)[front.line_count :]
    first_line = front.line_count + 1
    parse = parse_blocks if kind.syntax is Syntax.MARKDOWN else plain_blocks
    blocks = parse(lines, first_line=first_line)
    return PreparedDocument(
        title=_given_title(front.metadata) or _first_title(blocks) or name,
        metadata=front.metadata,
        sections=tuple(build_sections(lines, blocks, first_line=first_line)),
    )


def chunk_document(
    document: PreparedDocument,
    policy: ChunkPolicy,
    *,
    count_tokens: TokenCounter,
    embed_field: EmbedField = EmbedField.TITLE_AND_CONTENT,
) -> tuple[Piece, ...]:
    """Divide a document; no piece at all if it is blank.

    Args:
        document: as prepared.
        policy: how long a piece may be.
        count_tokens: the embedding model's own count of a text.
        embed_field: what of each piece is embedded.
    """
    return chunk_sections(
        document.sections,
        policy,
        count_tokens=count_tokens,
        embed_field=embed_field,
        title=document.title,
        lead=_given_title(document.metadata),
    )


def _given_title(metadata: Mapping[str, Json]) -> str:
    """The title in the front matter; empty if there is none."""
    title = metadata.get("title")
    if isinstance(title, bool) or not isinstance(title, str | int | float):
        return ""
    return " ".join(str(title).split())


def _first_title(blocks: Sequence[Block]) -> str:
    """The first level-1 heading with text; empty if there is none."""
    titles = (
        block.text for block in blocks if block.kind is BlockKind.HEADING and block.level == 1
    )
    return next((title for title in titles if not is_blank(title)), "")
