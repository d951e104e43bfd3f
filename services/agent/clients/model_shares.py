"""Who is next where several share calls by weight."""

from collections.abc import Collection, Sequence


class Shares:
    """Turns by weight, spread evenly: with weights 2 and 1 the turns go 0, 1, 0, 0, 1, 0 …

    Each turn, everyone who may have it gains his weight, and the richest has it and pays for all.
    (The smooth weighted round robin of nginx.) Who may not have it neither gains nor pays, so that
    nobody saves up turns while he rests.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        """All begin alike.

        Args:
            weights: at least 1 each, by place.
        """
        self._weights = weights
        self._credits = [0] * len(weights)

    def next(self, places: Collection[int]) -> int:
        """The place whose turn it is, of those that may have it."""
        for place in places:
            self._credits[place] += self._weights[place]
        chosen = max(places, key=lambda place: self._credits[place])
        self._credits[chosen] -= sum(self._weights[place] for place in places)
        return chosen
