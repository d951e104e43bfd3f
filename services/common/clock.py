"""The wall clock, passed in so that tests can fix it."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the present instant, timezone-aware, in UTC."""


def now() -> datetime:
    """The present instant in UTC."""
    return datetime.now(UTC)
