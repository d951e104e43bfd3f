"""Pauses between attempts, random so that those cut off together do not come back together."""

import random


def jittered(seconds: float) -> float:
    """A time between a half and one and a half of `seconds`, at random."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 -- spreads load, guards nothing


class Backoff:
    """Pauses that double with each attempt, up to a longest one, and are jittered."""

    def __init__(self, *, first: float, longest: float) -> None:
        """Nothing was tried yet.

        Args:
            first: seconds before the first repeat.
            longest: seconds before any repeat.
        """
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """Seconds to wait before the next attempt."""
        seconds, self._next = self._next, min(2 * self._next, self._longest)
        return jittered(seconds)

    def reset(self) -> None:
        """Begin with the first pause again, after an attempt that worked."""
        self._next = self._first
