"""Pages of lists, kept within what one message can carry."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from services.common.paging import Listing

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""How much text a page may carry: a message holds 20 MiB, and 200 documents may hold more."""

ItemT = TypeVar("ItemT")


def cut_listing(
    rows: Sequence[ItemT],
    *,
    size: int,
    weight: Callable[[ItemT], int],
    max_bytes: int = MAX_PAGE_BYTES,
) -> Listing[ItemT]:
    """As many rows as fit on a page by number and by weight, but at least one if there are any.

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
            return Listing(rows[:place], more=True)
    return Listing(rows[:size], more=len(rows) > size)
