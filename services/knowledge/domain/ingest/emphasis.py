"""Which delimiters are emphasis: the delimiter stack of CommonMark 0.31.2, section 6.2.

With GitHub's strikethrough (GFM 0.29 section 6.5): a run of exactly two tildes.
"""

import unicodedata
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Run:
    """A run of one delimiter character, linked to its neighbours on the stack.

    Attributes:
        char: `*`, `_` or `~`.
        count: how many there are in the source.
        place: where the run stands in the output.
        opens: whether it can open emphasis.
        closes: whether it can close emphasis.
        left: how many are not used up; these are visible.
    """

    char: str
    count: int
    place: int
    opens: bool
    closes: bool
    left: int
    before: "Run | None" = None
    after: "Run | None" = None

    def fits(self, closer: "Run") -> bool:
        """Whether this run opens what the closer closes (rules 9, 10 and the rule of three)."""
        if self.char != closer.char or not self.opens:
            return False
        if self.char == "~":
            return True
        both = self.closes or closer.opens
        return not both or closer.count % 3 == 0 or (self.count + closer.count) % 3 != 0


class Delimiters:
    """The stack of runs that may still turn out to be emphasis."""

    def __init__(self, output: list[str]) -> None:
        """Delimiters that are used up vanish from `output`, the visible pieces."""
        self._output = output
        self.top: Run | None = None

    def push(self, text: str, start: int, end: int) -> None:
        """Note the run `text[start:end]`, just added to the output."""
        char = text[start]
        opens, closes = _flanks(text, start, end)
        count = end - start
        if (char == "~" and count != 2) or not (opens or closes):
            return
        place = len(self._output) - 1
        run = Run(char, count, place, opens, closes, left=count, before=self.top)
        if self.top:
            self.top.after = run
        self.top = run

    def resolve(self, bottom: Run | None) -> None:
        """Match closers with openers above `bottom`, then drop all that is above it."""
        # Where openers of a kind were looked for in vain, by place: the run there may be gone.
        floors: dict[tuple[str, bool, int], int] = {}
        lowest = bottom.place if bottom else -1
        closer = self._first_above(bottom)
        while closer:
            if not closer.closes:
                closer = closer.after
                continue
            key = (closer.char, closer.opens, closer.count % 3)
            opener = _opener_above(floors.get(key, lowest), closer)
            if opener:
                closer = self._use(opener, closer)
                continue
            floors[key] = closer.before.place if closer.before else lowest
            following = closer.after
            if not closer.opens:
                self._unlink(closer)
            closer = following
        self.top = bottom
        if bottom:
            bottom.after = None

    def _first_above(self, bottom: Run | None) -> Run | None:
        run = self.top
        while run and run is not bottom and run.before is not bottom:
            run = run.before
        return None if run is bottom else run

    def _use(self, opener: Run, closer: Run) -> Run | None:
        """Use delimiters of both up; the next run to look at."""
        used = 2 if opener.left >= 2 and closer.left >= 2 else 1
        opener.after, closer.before = closer, opener
        for run in (opener, closer):
            run.left -= used
            self._output[run.place] = run.char * run.left
        following = closer if closer.left else closer.after
        for run in (opener, closer):
            if not run.left:
                self._unlink(run)
        return following

    def _unlink(self, run: Run) -> None:
        if run.before:
            run.before.after = run.after
        if run.after:
            run.after.before = run.before
        else:
            self.top = run.before


def _opener_above(floor: int, closer: Run) -> Run | None:
    """The nearest run before the closer, above the floor, that it closes."""
    run = closer.before
    while run and run.place > floor:
        if run.fits(closer):
            return run
        run = run.before
    return None


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Whether the run can open and whether it can close emphasis."""
    before = text[start - 1] if start else "\n"
    after = text[end] if end < len(text) else "\n"
    left = _outranks(after, before)
    right = _outranks(before, after)
    if text[start] == "_":
        return left and (not right or _is_punctuation(before)), right and (
            not left or _is_punctuation(after)
        )
    return left, right


def _outranks(inner: str, outer: str) -> bool:
    """Whether a run between these two characters flanks the inner one."""
    if inner.isspace():
        return False
    return not _is_punctuation(inner) or outer.isspace() or _is_punctuation(outer)


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"
