from hypothesis import given
from hypothesis import strategies as st

from services.agent.clients.model_retries import Retries, RetryBudget


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def granted(budget: RetryBudget, times: int) -> int:
    return sum(budget.repeat() for _ in range(times))


class TestRetries:
    def test_pauses_grow_and_stay_bounded(self) -> None:
        retries = Retries()

        for repeat, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (20, 8.0)):
            assert all(0 <= retries.pause(repeat) <= longest for _ in range(50))

    def test_pauses_are_spread_over_all_of_their_length(self) -> None:
        pauses = [Retries(base_seconds=1).pause(1) for _ in range(200)]

        assert min(pauses) < 0.2
        assert max(pauses) > 0.8


class TestRetryBudget:
    """T-D17: repeats do not add to an overload."""

    def test_a_lone_user_gets_every_repeat_of_three_calls_a_minute(self) -> None:
        budget = RetryBudget()

        for _ in range(3):
            budget.called()
            assert granted(budget, 3) == 3

    def test_many_calls_get_a_tenth(self) -> None:
        budget = RetryBudget()
        for _ in range(500):
            budget.called()

        assert granted(budget, 500) == 50

    def test_what_is_used_up_comes_back_with_time(self) -> None:
        clock = Clock()
        budget = RetryBudget(clock=clock)
        granted(budget, 10)
        assert not budget.repeat()

        clock.now = 59
        assert not budget.repeat()
        clock.now = 66

        assert granted(budget, 100) == 10

    @given(
        st.lists(st.tuples(st.floats(0, 3), st.integers(0, 40), st.integers(0, 10)), max_size=100)
    )
    def test_no_window_holds_more_repeats_than_its_share(
        self, events: list[tuple[float, int, int]]
    ) -> None:
        """Checked against every event; the window is at least nine tenths of its length."""
        clock = Clock()
        budget = RetryBudget(share=0.1, floor=5, window_seconds=10, clock=clock)
        calls: list[float] = []
        repeats: list[float] = []
        for gap, called, wanted in events:
            clock.now += gap
            for _ in range(called):
                budget.called()
                calls.append(clock.now)
            if not (given_now := granted(budget, wanted)):
                continue
            repeats += [clock.now] * given_now
            within = sum(clock.now - 9 <= each for each in repeats)
            seen = sum(clock.now - 10 <= each for each in calls)
            assert within <= max(5, 0.1 * seen)
