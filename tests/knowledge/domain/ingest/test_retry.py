"""How long a document waits."""

import pytest

from services.knowledge.domain.ingest.retry import LONGEST_DELAY, retry_delay


class TestRetryDelay:
    def test_doubles_up_to_the_longest(self) -> None:
        delays = [retry_delay(retries, spread=1.0) for retries in (0, 1, 2, 8, 9, 10_000)]

        assert delays == [1.0, 2.0, 4.0, 256.0, LONGEST_DELAY, LONGEST_DELAY]

    @pytest.mark.parametrize("retries", [0, 5, 50])
    def test_is_spread_over_half_of_it(self, retries: int) -> None:
        longest = retry_delay(retries, spread=1.0)

        assert longest / 2 == retry_delay(retries, spread=0.0)
        assert longest / 2 < retry_delay(retries, spread=0.5) < longest
