"""Finding out what fits a budget with as few token counts as possible: a real tokenizer is slow.

Texts are first measured by the estimate that needs no tokenizer. What it is worth for this
tokenizer and this kind of text is learnt from every real count, so that the first guess is mostly
close enough and one count confirms it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from services.knowledge.domain.ingest.policy import MAX_CHARS_PER_TOKEN
from services.knowledge.domain.ingest.token_estimate import estimate_tokens

TokenCounter = Callable[[str], int]

# What is this full is left alone: filling it up would cost another count.
_FULL = 0.85
_AIM = 0.93
# How far off an estimate may be, of a whole text and of what one more part adds.
_CERTAIN = 1.3
_LEEWAY = 1.05
_GUESSES = 4
_TYPICAL_RATE = 1.0
_SMALLEST_RATE = 0.05
_SAMPLE = 16
# A text as short as this is rather counted than estimated.
_SMALL = 64
# No character is estimated at less than one part in so many of a token.
_CHARS_PER_ESTIMATE = 4


class Meter:
    """Counts tokens, remembers what it counted last, and learns how dense the text is.

    Attributes:
        max_tokens: the budget.
        max_chars: what is longer is over the budget without being counted.
    """

    def __init__(self, count_tokens: TokenCounter, max_tokens: int) -> None:
        """Measure against a budget of `max_tokens`."""
        self.max_tokens = max_tokens
        self.max_chars = max_tokens * MAX_CHARS_PER_TOKEN
        self._count_tokens = count_tokens
        self._rate = _TYPICAL_RATE
        self._has_learnt = False
        self._known: dict[str, int] = {}

    def tokens(self, text: str) -> int:
        """What a text costs; of one that is too long in any case, only that it is."""
        if not text:
            return 0
        if len(text) > self.max_chars:
            return self.max_tokens + 1
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._count_tokens(text)
        return known

    def fits(self, text: str) -> bool:
        """Whether a text keeps to the budget; it is counted."""
        return self.tokens(text) <= self.max_tokens

    def exceeds(self, share: float, text: str, start: int, end: int) -> bool:
        """Whether a stretch of text probably costs more than a share of the budget."""
        most = int(self.max_tokens * share / self._rate)
        return size_of(text, start, end, most=most) > most

    def keeps_to(self, limit: int, text: str) -> bool:
        """Whether a text costs no more than `limit`; a long one clearly over it is not counted."""
        if len(text) > self.max_chars:
            return False
        size = estimate_tokens(text)
        if size > _SMALL and size * self._rate > limit * _CERTAIN:
            return False
        tokens = self.tokens(text)
        self._learn(tokens, size)
        return tokens <= limit

    @property
    def reach(self) -> int:
        """An estimated cost above what the budget holds, by all that is known."""
        return int(self.max_tokens * _CERTAIN / self._rate) + 2

    def forget(self) -> None:
        """Drop the remembered counts, not what was learnt from them."""
        self._known.clear()

    def likely_end(
        self, text: str, start: int, end: int, render: Callable[[int], str], *, overhead: int = 0
    ) -> int:
        """Where in a stretch of text the budget is probably nearly used up.

        Args:
            text: the whole text.
            start: where the stretch begins.
            end: where it ends.
            render: the text that ends at a place, with all that is counted with it; it is counted
                once if nothing has been counted yet that could be learnt from.
            overhead: the estimated cost of that text before the stretch.

        Returns:
            a place in the text; `start` if there is probably no room.
        """
        if not self._has_learnt:
            place = self._place_of(self._aim(overhead), text, start, end)
            self._learn(self.tokens(render(place)), overhead + size_of(text, start, place))
            self._has_learnt = True
        return self._place_of(self._aim(overhead), text, start, end)

    def _aim(self, overhead: int) -> int:
        """The estimated cost that nearly uses the budget up, beside what is there already."""
        return int(self.max_tokens * _AIM / self._rate) - overhead

    def _place_of(self, most: int, text: str, start: int, end: int) -> int:
        """The last place up to which a stretch of text costs no more than `most`, estimated."""
        places = range(start + 1, min(end, start + self.max_chars) + 1)
        return start + bisect_right(places, most, key=lambda place: size_of(text, start, place))

    def longest(
        self,
        places: Sequence[int],
        sizes: Sequence[int],
        render: Callable[[int], str],
        *,
        overhead: int = 0,
    ) -> int:
        """How many of the places can be reached within the budget.

        The result need not be the very last that fits: one that leaves the budget nearly used up,
        or where the next is clearly too far, will do.

        Args:
            places: ends that a text may have, ascending.
            sizes: for each, the estimated cost up to it; beyond `reach` it may be more.
            render: the text that ends at a place, with all that is counted with it.
            overhead: the estimated cost of that text beside those.

        Returns:
            the number of places up to the one found; 0 if not even the first fits.
        """
        good, bad = 0, len(places) + 1
        attempt = 0
        while bad - good > 1:
            guess = (good + bad) // 2
            if attempt < _GUESSES:
                guess = self._guess(sizes, overhead)
            guess = min(max(guess, good + 1), bad - 1)
            tokens = self._tokens_at(render, places[guess - 1], overhead + sizes[guess - 1])
            if tokens > self.max_tokens:
                bad = guess
            else:
                good = guess
                step = sizes[min(good, len(sizes) - 1)] - sizes[good - 1]
                if tokens >= self.max_tokens * _FULL or not self._may_hold(tokens, step):
                    break
            attempt += 1
        return good

    def _tokens_at(self, render: Callable[[int], str], place: int, size: int) -> int:
        """What the text up to a place costs; if that is clearly too much, only that it is."""
        if self._has_learnt and size > self.reach:
            return self.max_tokens + 1
        text = render(place)
        tokens = self.tokens(text)
        if size <= self.reach and len(text) <= self.max_chars:
            self._learn(tokens, size)
        return tokens

    def _may_hold(self, tokens: int, step: int) -> bool:
        """Whether something with this estimated cost may still fit."""
        return tokens + step * self._rate < self.max_tokens * _LEEWAY

    def _guess(self, sizes: Sequence[int], overhead: int) -> int:
        """How many of the places probably fit."""
        if (overhead + sizes[-1]) * self._rate <= self.max_tokens:
            return len(sizes)
        return bisect_right(sizes, self._aim(overhead))

    def _learn(self, tokens: int, size: int) -> None:
        if size >= _SAMPLE:
            self._rate = max(tokens / size, _SMALLEST_RATE)
            self._has_learnt = True


def size_of(text: str, start: int, end: int, *, most: int | None = None) -> int:
    """The estimated cost of a stretch of text; of one that costs more than `most`, just more."""
    if most is not None:
        end = min(end, start + most * _CHARS_PER_ESTIMATE + _CHARS_PER_ESTIMATE)
    return estimate_tokens(text[start:end])
