"""How many bad keys an address may send."""

import pytest

from services.gateway.domain.throttle import Throttle, source_of


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(burst=3, per_minute=6, monotonic=clock, most_sources=100)


class TestThrottle:
    def test_a_few_are_let_through_at_once(self, throttle: Throttle) -> None:
        waits = []
        for _ in range(4):
            waits.append(throttle.wait("a"))
            throttle.count_failure("a")

        assert waits[:3] == [0, 0, 0]
        assert waits[3] == pytest.approx(10)

    def test_time_makes_room_again(self, throttle: Throttle, clock: Clock) -> None:
        for _ in range(3):
            throttle.count_failure("a")
        clock.time += 4

        assert throttle.wait("a") == pytest.approx(6)
        clock.time += 6
        assert throttle.wait("a") == 0

    def test_room_grows_no_larger_than_at_first(self, throttle: Throttle, clock: Clock) -> None:
        throttle.count_failure("a")
        clock.time += 1_000_000
        for _ in range(3):
            throttle.count_failure("a")

        assert throttle.wait("a") > 0

    def test_addresses_are_counted_apart(self, throttle: Throttle) -> None:
        for _ in range(3):
            throttle.count_failure("a")

        assert throttle.wait("b") == 0

    def test_memory_is_bounded_and_forgets_the_oldest(self, throttle: Throttle) -> None:
        for _ in range(3):
            throttle.count_failure("first")
        for number in range(100):
            throttle.count_failure(str(number))

        assert throttle.wait("first") == 0
        assert len(throttle._buckets) == 100


class TestSourceOf:
    @pytest.mark.parametrize(
        ("peer", "source"),
        [
            ("ipv4:10.0.0.7:40100", "10.0.0.7"),
            ("ipv6:[::1]:40100", "::/64"),
            ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:40100", "2001:db8:1:2::/64"),
            ("ipv6:[2001:db8:1:2:ffff::9]:1", "2001:db8:1:2::/64"),
            ("ipv6:[::ffff:10.0.0.7]:40100", "10.0.0.7"),
            ("ipv6:[fe80::1%25eth0]:40100", "fe80::/64"),
            ("unix:/run/socket", "unix"),
            ("ipv4:odd:1", "odd"),
        ],
    )
    def test_it_is_the_address_without_the_port(self, peer: str, source: str) -> None:
        assert source_of(peer) == source
