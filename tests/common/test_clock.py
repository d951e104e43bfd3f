"""The wall clock."""

from datetime import UTC, datetime, timedelta

from services.common.clock import now


class TestNow:
    def test_it_is_the_present_in_utc(self) -> None:
        told = now()

        assert told.tzinfo is UTC
        assert abs(datetime.now(UTC) - told) < timedelta(seconds=5)
