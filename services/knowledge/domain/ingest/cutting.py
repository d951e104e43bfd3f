"""From an upload to its pieces, and what can go wrong on the way."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.common.text import Json
from services.knowledge.domain.embedding import TextDigest, text_digest
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.pipeline import chunk_document, prepare
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.ingest.token_estimate import estimate_tokens

MAX_TITLE_CHARS = 1000
"""A longer title is cut: it names the document in lists and answers."""


@dataclass(frozen=True, slots=True)
class CutRequest:
    """A document to cut.

    Attributes:
        content: the bytes as uploaded.
        name: its display name.
        media_type: as declared.
        policy: how long a piece may be.
        embed_field: what of a section is embedded.
    """

    content: bytes
    name: str
    media_type: str
    policy: ChunkPolicy
    embed_field: EmbedField


@dataclass(frozen=True, slots=True)
class CutDocument:
    """A document in pieces.

    Attributes:
        title: what it is called.
        metadata: its front matter.
        pieces: in their order.
        digests: of what is embedded of each.
    """

    title: str
    metadata: Mapping[str, Json]
    pieces: tuple[Piece, ...]
    digests: tuple[TextDigest, ...]


def cut(request: CutRequest) -> CutDocument:
    """Cut a document; slow, for it takes about a second for each megabyte.

    Raises:
        InvalidArgumentError: the content cannot be read.
    """
    document = prepare(request.content, name=request.name, media_type=request.media_type)
    pieces = chunk_document(
        document, request.policy, count_tokens=estimate_tokens, embed_field=request.embed_field
    )
    digests = tuple(text_digest(piece.embed_text) for piece in pieces)
    return CutDocument(_shown(document.title), document.metadata, pieces, digests)


def _shown(title: str) -> str:
    return title if len(title) <= MAX_TITLE_CHARS else title[: MAX_TITLE_CHARS - 1] + "…"


class CutterDiedError(Exception):
    """The process that was cutting the document died or was killed."""


class CutterTimeoutError(Exception):
    """A document took longer to cut than it may."""


class UncuttableError(Exception):
    """The document cannot be cut, for another reason than the time it takes."""
