"""Identifiers."""

import time
import uuid

from hypothesis import given
from hypothesis import strategies as st

from services.common.ids import new_id, uuid7


class TestUuid7:
    def test_it_is_the_example_of_the_rfc(self) -> None:
        """RFC 9562, appendix A.6: 2022-02-22T19:22:22Z, rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F."""
        entropy = 0xCC3 << 62 | 0x18C4DC0C0C07398F

        assert uuid7(milliseconds=0x017F22E279B0, entropy=entropy) == (
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
        )

    @given(st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
    def test_version_and_variant_hold_whatever_the_bits(self, time_: int, entropy: int) -> None:
        made = uuid.UUID(uuid7(milliseconds=time_, entropy=entropy))

        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == time_

    @given(st.integers(0, 2**48 - 2), st.integers(0, 2**74 - 1), st.integers(0, 2**74 - 1))
    def test_a_later_millisecond_sorts_later(self, time_: int, one: int, other: int) -> None:
        earlier = uuid7(milliseconds=time_, entropy=one)

        assert earlier < uuid7(milliseconds=time_ + 1, entropy=other)


class TestNewId:
    def test_it_holds_the_present_time(self) -> None:
        before = time.time_ns() // 1_000_000
        made = uuid.UUID(new_id())
        after = time.time_ns() // 1_000_000

        assert before <= made.int >> 80 <= after

    def test_ids_of_one_moment_differ(self) -> None:
        assert len({new_id() for _ in range(1_000)}) == 1_000
