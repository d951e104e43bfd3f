"""The process that cuts documents: `python -m services.knowledge.clients.cutter_process BYTES`.

It reads requests from standard input and answers on standard output until the former ends, as it
does when the service dies. A document that takes too long, or all of the BYTES of memory, takes
this process along and nothing else. The answer comes in parts, so that the service never spends
long on taking one in.
"""

import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.common.text import Json
from services.knowledge.clients.frames import pack, read
from services.knowledge.domain.embedding import TextDigest
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest, cut
from services.knowledge.domain.ingest.pieces import Piece

PART_SIZE = 200
"""How many pieces come in one part."""

_NICENESS = 5


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


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends us
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.nice(_NICENESS)
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            request = read(requests, CutRequest)
        except EOFError:
            return
        for answer in answers(request):
            replies.write(pack(answer))
        replies.flush()


def _part(document: CutDocument, span: slice) -> Part:
    return Part(document.pieces[span], document.digests[span])


if __name__ == "__main__":
    main()
