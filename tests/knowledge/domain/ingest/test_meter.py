import pytest

from services.knowledge.domain.ingest.meter import Meter, units, units_up_to
from services.knowledge.domain.ingest.policy import MAX_CHARS_PER_TOKEN


class Counter:
    """Counts tokens at a fixed rate and remembers what it was asked."""

    def __init__(self, chars_per_token: float = 1) -> None:
        self.asked: list[str] = []
        self._chars_per_token = chars_per_token

    def __call__(self, text: str) -> int:
        self.asked.append(text)
        return round(len(text) / self._chars_per_token)


class TestTokens:
    def test_a_text_is_counted_once_until_forgotten(self) -> None:
        counter = Counter()
        meter = Meter(counter, 10)

        assert [meter.tokens("abc"), meter.tokens("abc")] == [3, 3]
        assert counter.asked == ["abc"]
        meter.forget()
        assert meter.tokens("abc") == 3
        assert counter.asked == ["abc", "abc"]

    def test_nothing_costs_nothing(self) -> None:
        counter = Counter()

        assert Meter(counter, 10).tokens("") == 0
        assert counter.asked == []

    def test_what_is_too_long_in_any_case_is_not_counted(self) -> None:
        counter = Counter()
        meter = Meter(counter, 10)

        assert meter.tokens("a" * (10 * MAX_CHARS_PER_TOKEN + 1)) == 11
        assert counter.asked == []


class TestKeepsTo:
    def test_the_limit_itself(self) -> None:
        meter = Meter(Counter(), 10)

        assert meter.keeps_to(5, "abcde")
        assert not meter.keeps_to(5, "abcdef")

    def test_what_is_clearly_over_is_not_counted(self) -> None:
        counter = Counter()

        assert not Meter(counter, 10).keeps_to(5, "word " * 50)
        assert counter.asked == []


class TestFarthest:
    @pytest.mark.parametrize("rate", [0.5, 1, 2.5, 4, 9])
    @pytest.mark.parametrize("budget", [1, 3, 20, 50, 200])
    def test_nearly_fills_the_budget_and_never_breaks_it(self, rate: float, budget: int) -> None:
        meter = Meter(Counter(rate), budget)
        text = "some words 和汉字 in a line, " * 80

        end = meter.farthest(text, 0, len(text), lambda place: text[:place])

        assert round(end / rate) <= budget
        assert budget < 20 or end / rate >= budget * 0.8

    def test_the_start_if_nothing_fits(self) -> None:
        meter = Meter(Counter(), 3)

        assert meter.farthest("x words", 2, 7, lambda end: "words"[: end - 2]) == 2
        assert meter.farthest("a   ", 1, 4, lambda end: "") == 1

    def test_one_count_or_two_once_the_rate_is_known(self) -> None:
        counter = Counter(3)
        meter = Meter(counter, 200)
        text = "an ordinary sentence of some words. " * 200
        asked = []
        for start in range(0, 3000, 300):
            before = len(counter.asked)
            meter.farthest(text, start, len(text), lambda end, start=start: text[start:end])
            asked.append(len(counter.asked) - before)

        assert max(asked[1:]) <= 2
        assert sum(asked[1:]) <= 12

    def test_a_counter_without_order_does_not_hang(self) -> None:
        meter = Meter(lambda text: len(text) * 7919 % 20, 10)
        text = "word " * 100

        assert 0 <= meter.farthest(text, 0, len(text), lambda end: text[:end]) <= len(text)


class TestLongest:
    def test_everything_if_it_fits(self) -> None:
        counter = Counter()
        meter = Meter(counter, 100)

        assert meter.longest([3, 7, 12], [1, 2, 3], lambda end: "a" * end) == 3
        assert len(counter.asked) == 1

    def test_nothing_if_not_even_the_first_fits(self) -> None:
        assert Meter(Counter(), 2).longest([3, 7], [1, 2], lambda end: "a" * end) == 0

    def test_text_that_goes_with_it_counts(self) -> None:
        meter = Meter(Counter(), 10)

        assert meter.longest([3, 6, 9], [1, 2, 3], lambda end: "head" + "a" * end, overhead=1) == 2


class TestExceeds:
    def test_a_share_of_the_budget(self) -> None:
        meter = Meter(Counter(), 100)
        text = "a b c d e f g h i j " * 20

        assert meter.exceeds(0.25, text, 0, len(text))
        assert not meter.exceeds(0.25, text, 0, 20)


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", 0),
            ("a", 1),
            ("words", 1),
            ("wordss", 2),
            ("汉字", 2),
            ("a b", 2),
            ("1234", 2),
            ("(x)", 3),
        ],
    )
    def test_stand_for_tokens(self, text: str, expected: int) -> None:
        assert expected == units(text)

    def test_counting_stops_when_there_are_enough(self) -> None:
        assert 10 < units_up_to(10, "汉" * 10_000, 0, 10_000) < 100
        assert units_up_to(10, "汉字", 0, 2) == 2
