from collections.abc import Callable

import pytest

from services.knowledge.domain.ingest.meter import Meter, size_of
from services.knowledge.domain.ingest.policy import MAX_CHARS_PER_TOKEN
from services.knowledge.domain.ingest.token_estimate import estimate_tokens


class Counter:
    """Counts tokens at a fixed rate and remembers what it was asked."""

    def __init__(self, chars_per_token: float = 1) -> None:
        self.asked: list[str] = []
        self._chars_per_token = chars_per_token

    def __call__(self, text: str) -> int:
        self.asked.append(text)
        return round(len(text) / self._chars_per_token)


def between(text: str, start: int) -> Callable[[int], str]:
    """The text from there to any end."""
    return lambda end: text[start:end]


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

        assert not Meter(counter, 10).keeps_to(5, "word " * 65)
        assert counter.asked == []


class TestLikelyEnd:
    @pytest.mark.parametrize("rate", [0.5, 1, 2.5, 4, 9])
    @pytest.mark.parametrize("budget", [20, 50, 200])
    def test_nearly_fills_the_budget(self, rate: float, budget: int) -> None:
        meter = Meter(Counter(rate), budget)
        text = "some words 和汉字 in a line, " * 80

        end = meter.likely_end(text, 0, len(text), lambda place: text[:place])

        assert budget * 0.7 <= end / rate <= budget * 1.3

    def test_counts_once_and_never_again(self) -> None:
        counter = Counter(3)
        meter = Meter(counter, 100)
        text = "an ordinary sentence of some words. " * 200
        for start in range(0, 3000, 300):
            meter.likely_end(text, start, len(text), between(text, start))

        assert len(counter.asked) == 1

    def test_what_stands_before_takes_its_share(self) -> None:
        meter = Meter(Counter(), 100)
        text = "a b c d e f g h i j " * 20
        alone = meter.likely_end(text, 0, len(text), lambda end: text[:end])

        assert meter.likely_end(text, 0, len(text), lambda end: text[:end], overhead=10) < alone
        assert meter.likely_end(text, 5, len(text), lambda end: text[:end], overhead=999) == 5


class TestLongest:
    def test_everything_if_it_fits(self) -> None:
        counter = Counter()
        meter = Meter(counter, 100)

        assert meter.longest([3, 7, 12], [1, 2, 3], lambda end: "a" * end) == 3
        assert len(counter.asked) == 1

    def test_nothing_if_not_even_the_first_fits(self) -> None:
        assert Meter(Counter(), 2).longest([3, 7], [1, 2], lambda end: "a" * end) == 0

    def test_what_is_clearly_too_long_is_not_counted(self) -> None:
        counter = Counter()
        meter = Meter(counter, 50)
        meter.keeps_to(50, "an ordinary sentence of some words.")
        sizes = [10, 5000]

        assert meter.longest([10, 9000], sizes, lambda end: "a " * (end // 2)) == 1
        assert max(map(len, counter.asked)) < 100

    def test_text_that_goes_with_it_counts(self) -> None:
        meter = Meter(Counter(), 10)

        assert meter.longest([3, 6, 9], [1, 2, 3], lambda end: "head" + "a" * end, overhead=1) == 2


class TestExceeds:
    def test_a_share_of_the_budget(self) -> None:
        meter = Meter(Counter(), 100)
        text = "a b c d e f g h i j " * 20

        assert meter.exceeds(0.25, text, 0, len(text))
        assert not meter.exceeds(0.25, text, 0, 20)


class TestSizeOf:
    @pytest.mark.parametrize("text", ["", "word " * 50, "汉字" * 50, "a, b; (c)", "x = 1\n"])
    def test_is_the_estimate(self, text: str) -> None:
        assert estimate_tokens(text) == size_of(text, 0, len(text))
        assert estimate_tokens(text[2:]) == size_of(text, 2, len(text))

    @pytest.mark.parametrize("text", ["word " * 9000, "汉" * 9000, " " * 9000])
    def test_measuring_stops_when_there_is_enough(self, text: str) -> None:
        assert 10 < size_of(text, 0, len(text), most=10) < 100
        assert size_of(text, 0, 3, most=10) == estimate_tokens(text[:3])
