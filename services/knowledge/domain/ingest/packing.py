"""Filling pieces: as many neighbouring parts of a section as the budget holds, then the next piece.

A part that does not fit is taken apart, and text that has no parts is cut. Every piece is one
stretch of the source, so the pieces of a section follow each other without loss.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from services.knowledge.domain.ingest.boundaries import (
    Cut,
    Place,
    cut_code,
    cut_prose,
)
from services.knowledge.domain.ingest.graphemes import grapheme_end, is_blank
from services.knowledge.domain.ingest.meter import Meter, size_of
from services.knowledge.domain.ingest.nodes import Body, Node, NodeKind
from services.knowledge.domain.ingest.overlap import overlap_before
from services.knowledge.domain.ingest.parts import parts_of
from services.knowledge.domain.ingest.token_estimate import estimate_tokens

# A piece this full is closed rather than filled up with the beginning of a part that is too long.
_FILLED = 0.5
# A rest smaller than this is not left to a last piece of its own: the last two share evenly.
_REST = 0.25
# What a table or fence repeats may take this much; with a longer head its parts go without.
_FRAME_SHARE = 0.5
_ANNOUNCING = (":", "：")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The source text of one piece.

    Attributes:
        overlap_start: the place where its text begins, the repeated end of the one before included.
        start: the place where its own text begins.
        end: the place where it ends.
        head: what is repeated before it.
        tail: what is repeated after it.
    """

    overlap_start: int
    start: int
    end: int
    head: str = ""
    tail: str = ""

    def text(self, body: Body) -> str:
        """The text with what is repeated around it."""
        return f"{self.head}{body.text[self.overlap_start : self.end]}{self.tail}"


class Packer:
    """Divides one body into stretches that fit the budget together with a prefix."""

    def __init__(
        self, body: Body, nodes: Sequence[Node], *, prefix: str, meter: Meter, overlap_tokens: int
    ) -> None:
        self._body = body
        self._prefix = prefix
        self._prefix_size = estimate_tokens(prefix)
        self._meter = meter
        self._overlap_tokens = overlap_tokens
        # The parts still to be placed, the next one last.
        self._todo = list(reversed(nodes))

    def stretches(self) -> Iterator[Stretch]:
        """The stretches in order; none is blank, and only a single character can be too long."""
        taken: list[Node] = []
        while self._todo:
            opening, count = self._fill(self._overlapping(taken))
            taken = [self._todo.pop() for _ in range(count)]
            if not is_blank(self._body.text, opening.start, taken[-1].end):
                yield replace(opening, end=taken[-1].end, tail=taken[-1].missing_tail)
            self._meter.forget()

    def _overlapping(self, taken: Sequence[Node]) -> Stretch:
        """A piece that begins with the next part, after what it repeats of the one before."""
        node = self._todo[-1]
        overlap = overlap_before(
            node, taken, body=self._body, meter=self._meter, max_tokens=self._overlap_tokens
        )
        if not overlap:
            return self._opening(node)
        return Stretch(overlap.start, node.start, node.start, overlap.head)

    @staticmethod
    def _opening(node: Node) -> Stretch:
        """A piece that begins with this part and repeats nothing of the one before."""
        return Stretch(node.start, node.start, node.start, node.missing_head)

    def _render(self, opening: Stretch, end: int, tail: str) -> str:
        """What is counted for a piece that begins like this and ends there."""
        return f"{self._prefix}{opening.head}{self._body.text[opening.overlap_start : end]}{tail}"

    def _fill(self, opening: Stretch) -> tuple[Stretch, int]:
        """Take parts apart until some fit; the opening they fit with, and how many."""
        while True:
            window, sizes = self._window()
            count = self._fitting(opening, window, sizes)
            if count == 0:
                if opening.overlap_start < opening.start:
                    opening = self._opening(self._todo[-1])
                elif not self._divide(opening):
                    return opening, 1
            elif not self._fill_up(opening, window[:count]):
                return opening, self._settled(opening, window, count)

    def _window(self) -> tuple[list[Node], list[int]]:
        """The next parts, more than a piece holds but at least one, and the cost up to each."""
        window: list[Node] = []
        sizes: list[int] = []
        start, size = self._todo[-1].start, 0
        for node in reversed(self._todo):
            if window and (size > self._meter.reach or node.end - start > self._meter.max_chars):
                break
            size += size_of(self._body.text, node.start, node.end, most=self._meter.reach)
            window.append(node)
            sizes.append(size)
        return window, sizes

    def _fitting(self, opening: Stretch, window: Sequence[Node], sizes: Sequence[int]) -> int:
        ends = [node.end for node in window]
        if ends[0] - opening.overlap_start > self._meter.max_chars:
            return 0

        def render(end: int) -> str:
            return self._render(opening, end, window[bisect_left(ends, end)].missing_tail)

        return self._meter.longest(ends, sizes, render, overhead=self._overhead(opening))

    def _overhead(self, opening: Stretch) -> int:
        """The estimated cost that a piece has beside its own text."""
        repeated = size_of(self._body.text, opening.overlap_start, opening.start)
        return self._prefix_size + estimate_tokens(opening.head) + repeated

    def _fill_up(self, opening: Stretch, taken: Sequence[Node]) -> bool:
        """Take the part after those that fit apart, if it is too long for any piece as it is.

        Not if the piece is filled well enough, and never a table: a piece with rows begins with
        their header.
        """
        if len(taken) == len(self._todo):
            return False
        following = self._todo[-1 - len(taken)]
        whole = self._render(opening, taken[-1].end, taken[-1].missing_tail)
        filled = self._meter.tokens(whole)
        if filled > self._meter.max_tokens * _FILLED or following.kind is NodeKind.TABLE:
            return False
        if self._fits_alone(following):
            return False
        place = len(self._todo) - 1 - len(taken)
        parts = self._parts(following) or self._cut(following, opening, least=Cut.SENTENCE)
        if parts:
            self._todo[place : place + 1] = reversed(parts)
        return bool(parts)

    def _fits_alone(self, node: Node) -> bool:
        if node.end - node.start > self._meter.max_chars:
            return False
        alone = self._render(self._opening(node), node.end, node.missing_tail)
        return self._meter.keeps_to(self._meter.max_tokens, alone)

    def _divide(self, opening: Stretch) -> bool:
        """Take the next part apart, or cut it; False if it is a single character."""
        node = self._todo[-1]
        parts = self._parts(node) or self._cut(node, opening)
        if not parts and node.frame:
            parts = [replace(node, frame=None)]
        if not parts:
            return False
        self._todo[-1:] = reversed(parts)
        return True

    def _parts(self, node: Node) -> list[Node]:
        """The parts of a part, without their frame if that leaves too little room."""
        parts = parts_of(self._body, node)
        frame = parts[0].frame if parts else None
        if frame and frame is not node.frame:
            alone = self._meter.tokens(f"{self._prefix}{frame.head}{frame.tail}")
            if alone > self._meter.max_tokens * _FRAME_SHARE:
                return [replace(part, frame=None) for part in parts]
        return parts

    def _cut(self, node: Node, opening: Stretch, *, least: Cut = Cut.CHARACTER) -> list[Node]:
        """The two parts of text where it is cut to fit; none if it cannot be, or not so well."""
        text, start = self._body.text, self._cut_start(node)
        if grapheme_end(text, start) >= node.end:
            return []
        cut = cut_code if node.kind is NodeKind.CODE else cut_prose
        tail = node.frame.tail if node.frame else ""
        limit = min(self._likely_limit(node, opening), node.end - 1)
        while True:
            place = cut(text, start, max(limit, start + 1))
            tokens = self._meter.tokens(self._render(opening, place.end, tail))
            if tokens <= self._meter.max_tokens or limit <= start + 1:
                break
            size = min(limit, place.end) - start
            limit = start + min(size - 1, size * self._meter.max_tokens // tokens)
        if place.cut < least or place.end >= node.end:
            return []
        return self._halves(node, place)

    def _cut_start(self, node: Node) -> int:
        """Where the text of a part begins that a cut may leave behind, the head of a frame not."""
        if node.frame and node.has_head:
            return max(node.start, self._body.start(node.frame.first_line))
        return node.start

    def _likely_limit(self, node: Node, opening: Stretch) -> int:
        """The last place in the part that probably fits; nearer for a better last piece."""
        text = self._body.text
        limit = self._meter.likely_end(
            text,
            node.start,
            node.end,
            lambda end: self._render(opening, end, node.missing_tail),
            overhead=self._overhead(opening) + size_of(text, opening.start, node.start),
        )
        return min(limit, self._even_limit(opening, limit))

    def _even_limit(self, opening: Stretch, limit: int) -> int:
        """A little past the middle of what is left, if what does not fit is but a small rest."""
        end = self._todo[0].end
        if self._meter.exceeds(_REST, self._body.text, limit, end):
            return limit
        return opening.start + (end - opening.start) * 3 // 5

    def _halves(self, node: Node, place: Place) -> list[Node]:
        first = replace(
            node,
            end=place.end,
            last_line=self._body.line_at(place.end - 1),
            has_tail=node.frame is None,
        )
        if place.following >= node.end:
            return [first]
        second = replace(
            node,
            start=place.following,
            first_line=self._body.line_at(place.following),
            has_head=node.frame is None,
        )
        return [first, second]

    def _settled(self, opening: Stretch, window: Sequence[Node], count: int) -> int:
        """How many of the parts that fit make the best piece."""
        if count == len(self._todo) or count == 1:
            return count
        best = self._best_count(window, count)
        last = window[best - 1]
        fits = self._meter.fits(self._render(opening, last.end, last.missing_tail))
        return best if fits else count

    def _best_count(self, window: Sequence[Node], count: int) -> int:
        start, end = window[0].start, self._todo[0].end
        if not self._meter.exceeds(_REST, self._body.text, window[count - 1].end, end):
            middle = (start + end) // 2
            return min(range(1, count + 1), key=lambda n: abs(window[n - 1].end - middle))
        return count - self._announces(window[count - 1], self._todo[-1 - count])

    def _announces(self, node: Node, following: Node) -> bool:
        """Whether a part is the sentence that leads up to the next one and fits a piece with it."""
        if node.kind is not NodeKind.PROSE or following.kind is NodeKind.PROSE:
            return False
        text = self._body.text
        announces = text.endswith(_ANNOUNCING, node.start, node.end)
        return announces and not self._meter.exceeds(1 - _REST, text, node.start, following.end)
