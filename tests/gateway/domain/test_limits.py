"""How many calls go on at once."""

import pytest

from services.common.errors import ResourceExhaustedError
from services.gateway.domain.limits import Slots
from services.gateway.domain.models import KeyId

ONE, TWO = KeyId("1"), KeyId("2")


class TestSlots:
    def test_a_key_gets_no_more_than_its_share(self) -> None:
        slots = Slots("calls", most=10, most_per_key=2)
        slots.take(ONE)
        slots.take(ONE)

        with pytest.raises(ResourceExhaustedError, match="This key has as many calls"):
            slots.take(ONE)
        slots.take(TWO)
        assert slots.taken == 3

    def test_all_keys_together_get_no_more_than_there_is(self) -> None:
        slots = Slots("calls", most=1, most_per_key=2)
        slots.take(ONE)

        with pytest.raises(ResourceExhaustedError, match="The gateway has as many calls"):
            slots.take(TWO)
        slots.give_back(ONE)
        slots.take(TWO)
        assert slots.taken == 1

    def test_nothing_is_remembered_of_keys_without_calls(self) -> None:
        slots = Slots("calls", most=1000, most_per_key=1)
        for number in range(100):
            slots.take(KeyId(str(number)))
            slots.give_back(KeyId(str(number)))

        assert slots.taken == len(slots._taken) == 0
