from services.common.backoff import Backoff, jittered


class TestJittered:
    def test_times_spread_over_a_half_more_and_less(self) -> None:
        times = [jittered(10) for _ in range(1000)]

        assert 5 <= min(times) < 6
        assert 14 < max(times) <= 15


class TestBackoff:
    def test_pauses_double_up_to_the_longest(self) -> None:
        backoff = Backoff(first=1, longest=5)

        for longest in (1, 2, 4, 5, 5):
            assert longest / 2 <= backoff.pause() <= longest * 1.5

    def test_they_begin_anew_after_a_success(self) -> None:
        backoff = Backoff(first=1, longest=100)
        for _ in range(10):
            backoff.pause()

        backoff.reset()

        assert backoff.pause() <= 1.5
