"""Limits on how many calls of one kind run at once, in total and per key."""

from collections import Counter

from services.common.errors import ResourceExhaustedError
from services.gateway.domain.models import KeyId

_RETRY_AFTER = 1.0


class ConcurrencyLimit:
    """How many calls of one kind may run at once.

    Attributes:
        kind: what these calls are called, in the plural.
    """

    def __init__(self, kind: str, *, most: int, most_per_key: int) -> None:
        self.kind = kind
        self._most = most
        self._most_per_key = most_per_key
        self._open: Counter[KeyId] = Counter()

    @property
    def open(self) -> int:
        """How many are running now."""
        return self._open.total()

    def acquire(self, key_id: KeyId) -> None:
        """Count a call that begins.

        Raises:
            ResourceExhaustedError: the limit is reached; the call is not counted.
        """
        if self._open[key_id] >= self._most_per_key:
            raise self._full("This key has")
        if self.open >= self._most:
            raise self._full("The gateway has")
        self._open[key_id] += 1

    def release(self, key_id: KeyId) -> None:
        """Count a call that has ended."""
        self._open[key_id] -= 1
        if not self._open[key_id]:
            del self._open[key_id]

    def _full(self, who: str) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{who} as many {self.kind} open as it may.", retry_after=_RETRY_AFTER
        )
