"""Batches keep to their limits and lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.knowledge.domain.ingest.batching import BatchLimits, batches


class TestBatches:
    @pytest.mark.parametrize(
        ("costs", "expected"),
        [
            ([], []),
            ([1], [1]),
            ([5, 5, 5], [2, 1]),
            ([1, 1, 1, 1], [3, 1]),
            ([11], [1]),
            ([1, 11, 1], [1, 1, 1]),
            ([10, 10], [1, 1]),
            ([4, 6, 1], [2, 1]),
            ([0, 0, 0, 0], [3, 1]),
        ],
    )
    def test_are_as_full_as_the_limits_allow(self, costs: list[int], expected: list[int]) -> None:
        found = batches(costs, BatchLimits(texts=3, tokens=10))

        assert expected == [len(batch) for batch in found]

    @given(
        st.lists(st.integers(0, 30)),
        st.builds(BatchLimits, texts=st.integers(1, 5), tokens=st.integers(1, 20)),
    )
    def test_hold_every_text_once_and_in_order(self, costs: list[int], limits: BatchLimits) -> None:
        found = list(batches(costs, limits))

        assert list(range(len(costs))) == [place for batch in found for place in batch]
        for batch in found:
            assert 1 <= len(batch) <= limits.texts
            assert len(batch) == 1 or sum(costs[i] for i in batch) <= limits.tokens
