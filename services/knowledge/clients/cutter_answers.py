"""What a process that cuts documents answers: a head, then the pieces in parts.

In parts, so that the service never spends long on taking one in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.common.text import Json
from services.knowledge.domain.embedding import TextDigest
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest, cut
from services.knowledge.domain.ingest.pieces import Piece

PART_SIZE = 200
"""How many pieces come in one part."""


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the pieces.

    Attributes:
        title: the document's.
        metadata: its front matter.
        parts: how many follow.
        failure: why there are none, for the log; empty where all went well.
    """

    title: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    parts: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Some pieces, in their order."""

    pieces: tuple[Piece, ...]
    digests: tuple[TextDigest, ...]


def answers(request: CutRequest) -> Iterator[Head | Part]:
    """What is answered to a request."""
    try:
        document = cut(request)
    except Exception as error:  # noqa: BLE001 - the service decides what becomes of it
        yield Head(failure=f"{type(error).__name__}: {error}")
        return
    starts = range(0, len(document.pieces), PART_SIZE)
    yield Head(document.title, document.metadata, len(starts))
    for start in starts:
        yield _part(document, slice(start, start + PART_SIZE))


def _part(document: CutDocument, span: slice) -> Part:
    return Part(document.pieces[span], document.digests[span])
