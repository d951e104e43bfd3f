"""Which end of a piece the next one repeats: whole blocks, items, rows, lines or sentences."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.knowledge.domain.ingest.boundaries import sentence_starts
from services.knowledge.domain.ingest.meter import Meter
from services.knowledge.domain.ingest.nodes import Body, Node, NodeKind


@dataclass(frozen=True, slots=True)
class Overlap:
    """The end of a piece that is repeated.

    Attributes:
        start: the place where it begins; it reaches to where the next piece begins.
        head: what goes before it, if it begins inside a table or fence.
    """

    start: int
    head: str


def overlap_before(
    following: Node, taken: Sequence[Node], *, body: Body, meter: Meter, max_tokens: int
) -> Overlap | None:
    """The longest end of the piece before that keeps to `max_tokens`, short of all of it.

    Args:
        following: the part that the next piece begins with.
        taken: the parts of the piece before.
        body: what they are parts of.
        meter: counts tokens.
        max_tokens: how much may be repeated.
    """
    if not taken or not max_tokens:
        return None
    end = taken[-1].end
    candidates: list[Overlap] = []
    for candidate in _candidates(following, taken, body):
        if meter.exceeds(1, body.text, candidate.start, end):
            break
        candidates.append(candidate)
    count = bisect_left(
        candidates, True, key=lambda each: meter.tokens(body.text[each.start : end]) > max_tokens
    )
    return candidates[count - 1] if count else None


def _candidates(following: Node, taken: Sequence[Node], body: Body) -> Iterator[Overlap]:
    """Where a repeated end may begin, last place first.

    Not outside the table or fence that the next piece is inside of, nor before one that begins it:
    such a piece starts with the head.
    """
    frame = following.frame
    if frame and following.has_head:
        return
    for node in reversed(taken):
        if node.frame is not frame:
            return
        if node.kind is NodeKind.PROSE and not frame:
            starts = sentence_starts(body.text, node.start, node.end)
            yield from (Overlap(start, "") for start in reversed(starts))
        if node is not taken[0]:
            yield Overlap(node.start, node.missing_head)
