"""How many calls of one kind go on at once, in all and for one key."""

from collections import Counter

from services.common.errors import ResourceExhaustedError
from services.gateway.domain.models import KeyId

_RETRY_AFTER = 1.0


class Slots:
    """The room for calls of one kind.

    Attributes:
        kind: what they are called, in the plural.
    """

    def __init__(self, kind: str, *, most: int, most_per_key: int) -> None:
        self.kind = kind
        self._most = most
        self._most_per_key = most_per_key
        self._taken: Counter[KeyId] = Counter()

    @property
    def taken(self) -> int:
        """How many go on now."""
        return self._taken.total()

    def take(self, key_id: KeyId) -> None:
        """One more call begins.

        Raises:
            ResourceExhaustedError: there is no room; nothing was taken.
        """
        if self._taken[key_id] >= self._most_per_key:
            raise self._full("This key has")
        if self.taken >= self._most:
            raise self._full("The gateway has")
        self._taken[key_id] += 1

    def give_back(self, key_id: KeyId) -> None:
        """A call has ended."""
        self._taken[key_id] -= 1
        if not self._taken[key_id]:
            del self._taken[key_id]

    def _full(self, who: str) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{who} as many {self.kind} open as it may.", retry_after=_RETRY_AFTER
        )
