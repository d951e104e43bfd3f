"""Pages of lists, cut to their size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""How much text a page may carry: a message holds 20 MiB, and 200 documents may hold more."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Listing(Generic[ItemT]):
    """A page of a list.

    Attributes:
        items: what is on it; at least one, where there are any.
        more: whether there are more behind it.
    """

    items: tuple[ItemT, ...]
    more: bool


def cut_listing(
    rows: Sequence[ItemT],
    *,
    size: int,
    weight: Callable[[ItemT], int],
    max_bytes: int = MAX_PAGE_BYTES,
) -> Listing[ItemT]:
    """As many of the rows as a page takes, by number and by weight.

    Args:
        rows: in their order, one more than `size` where there are more.
        size: how many at most.
        weight: about how many bytes one takes.
        max_bytes: how many bytes at most; a single row may take more.
    """
    left = max_bytes
    for place, row in enumerate(rows[:size]):
        left -= weight(row)
        if left < 0 and place > 0:
            return Listing(tuple(rows[:place]), more=True)
    return Listing(tuple(rows[:size]), more=len(rows) > size)
