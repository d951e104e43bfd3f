"""Identifiers: UUIDv7, ordered by creation time to the millisecond (RFC 9562, section 5.7)."""

import secrets
import time
import uuid
from collections.abc import Callable

NewId = Callable[[], str]
"""Returns a fresh id; passed in so that tests can fix it."""


def new_id() -> str:
    """A fresh UUIDv7 in canonical text form, such as `01973f6c-…`."""
    return uuid7(milliseconds=time.time_ns() // 1_000_000, entropy=secrets.randbits(74))


def uuid7(*, milliseconds: int, entropy: int) -> str:
    """The UUIDv7 of a Unix time in milliseconds and 74 random bits."""
    high, low = entropy >> 62, entropy & ((1 << 62) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (high & 0xFFF) << 64
    return str(uuid.UUID(int=value | 0b10 << 62 | low))
