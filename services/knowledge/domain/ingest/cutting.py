"""What comes of cutting a document, and what can go wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.common.text import Json
from services.knowledge.domain.ingest.pieces import Piece


@dataclass(frozen=True, slots=True)
class CutDocument:
    """A document in pieces.

    Attributes:
        title: what it is called.
        metadata: its front matter.
        pieces: in their order.
    """

    title: str
    metadata: Mapping[str, Json]
    pieces: tuple[Piece, ...]


class CutterDiedError(Exception):
    """What cuts documents died of this one, or was killed."""


class CutterTimeoutError(Exception):
    """A document took longer to cut than it may."""
