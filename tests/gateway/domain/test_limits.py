"""How many calls go on at once."""

import pytest

from services.common.errors import ResourceExhaustedError
from services.gateway.domain.limits import ConcurrencyLimit
from services.gateway.domain.models import KeyId

ONE, TWO = KeyId("1"), KeyId("2")


class TestConcurrencyLimit:
    def test_a_key_gets_no_more_than_its_share(self) -> None:
        limit = ConcurrencyLimit("calls", most=10, most_per_key=2)
        limit.acquire(ONE)
        limit.acquire(ONE)

        with pytest.raises(ResourceExhaustedError, match="This key has as many calls"):
            limit.acquire(ONE)
        limit.acquire(TWO)
        assert limit.open == 3

    def test_all_keys_together_get_no_more_than_there_is(self) -> None:
        limit = ConcurrencyLimit("calls", most=1, most_per_key=2)
        limit.acquire(ONE)

        with pytest.raises(ResourceExhaustedError, match="The gateway has as many calls"):
            limit.acquire(TWO)
        limit.release(ONE)
        limit.acquire(TWO)
        assert limit.open == 1

    def test_nothing_is_remembered_of_keys_without_calls(self) -> None:
        limit = ConcurrencyLimit("calls", most=1000, most_per_key=1)
        for number in range(100):
            limit.acquire(KeyId(str(number)))
            limit.release(KeyId(str(number)))

        assert limit.open == len(limit._open) == 0
