"""Pages are cut by number and by weight."""

import pytest

from services.knowledge.domain.listing import cut_listing


class TestCutListing:
    @pytest.mark.parametrize(
        ("weights", "size", "expected", "more"),
        [
            ([], 2, [], False),
            ([1, 1], 2, [1, 1], False),
            ([1, 1, 1], 2, [1, 1], True),
            ([6, 4, 1], 5, [6, 4], True),
            ([6, 5], 5, [6], True),
            ([11], 5, [11], False),
            ([11, 1], 5, [11], True),
            ([1, 99], 5, [1], True),
        ],
    )
    def test_holds_what_fits_and_at_least_one(
        self, weights: list[int], size: int, expected: list[int], more: bool
    ) -> None:
        page = cut_listing(weights, size=size, weight=int, max_bytes=10)

        assert (expected, more) == (list(page.items), page.more)
