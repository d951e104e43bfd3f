"""How often and how soon a request to a model is repeated."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class Retries:
    """What bounds the repeats of one call.

    Attributes:
        attempts: requests at most, all endpoints together.
        base_seconds: the longest pause before the first repeat; doubled with each further one.
        most_seconds: the longest pause of all.
        most_retry_after_seconds: the longest time for which a server may ask to be left alone.
    """

    attempts: int = 4
    base_seconds: float = 0.5
    most_seconds: float = 8.0
    most_retry_after_seconds: float = 60.0

    def pause(self, repeat: int) -> float:
        """Seconds to wait before a repeat, numbered from 1: random, so that crowds disperse."""
        longest = min(self.most_seconds, self.base_seconds * 2 ** (repeat - 1))
        return random.uniform(0, longest)  # noqa: S311 -- spreads load, guards nothing


@dataclass(slots=True)
class _Step:
    """What happened in a tenth of the window."""

    number: int
    calls: int = 0
    repeats: int = 0


class RetryBudget:
    """Bounds the repeats of all calls of a model together, so that they do not add to an overload.

    Within a sliding window, repeats are at most a share of the calls, or `floor` of them if that is
    more: few users do without none of their repeats, and many cannot double the load of a server
    that fails now and then. The window moves on in tenths. (After the retry budget of Finagle and
    the retryThrottling of gRPC.)
    """

    def __init__(
        self,
        *,
        share: float = 0.1,
        floor: int = 10,
        window_seconds: float = 60.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begins with an empty window.

        Args:
            share: repeats for each call.
            floor: repeats in a window that are always allowed.
            window_seconds: its length.
            clock: monotonic, in seconds.
        """
        self._share = share
        self._floor = floor
        self._step_seconds = window_seconds / _STEPS
        self._clock = clock
        self._steps: deque[_Step] = deque()

    def called(self) -> None:
        """Note a call; its repeats do not count as calls."""
        self._step().calls += 1

    def repeat(self) -> bool:
        """Take leave for one repeat; whether there is any left."""
        step = self._step()
        calls = sum(each.calls for each in self._steps)
        repeats = sum(each.repeats for each in self._steps)
        if repeats + 1 > max(self._floor, self._share * calls):
            return False
        step.repeats += 1
        return True

    def _step(self) -> _Step:
        number = int(self._clock() / self._step_seconds)
        while self._steps and self._steps[0].number <= number - _STEPS:
            self._steps.popleft()
        if not self._steps or self._steps[-1].number != number:
            self._steps.append(_Step(number))
        return self._steps[-1]
