import pytest

from services.knowledge.domain.ingest.meter import Meter
from services.knowledge.domain.ingest.paths import fitting_path, path_text, shortened_to


class TestPathText:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ((), ""),
            (("a",), "a"),
            (("a", "b", "c"), "a > b > c"),
            (("", "b", ""), "b"),
            (("",), ""),
        ],
    )
    def test_is_one_line_of_the_headings_with_text(
        self, path: tuple[str, ...], expected: str
    ) -> None:
        assert expected == path_text(path)


class TestFittingPath:
    @pytest.mark.parametrize(
        ("max_tokens", "expected"),
        [
            (99, "Guide > Install > Linux > From source"),
            (37, "Guide > Install > Linux > From source"),
            (36, "Guide > … > From source"),
            (22, "… > From source"),
            (14, "From source"),
            (10, "From sour…"),
            (2, "F…"),
            (1, ""),
            (0, ""),
        ],
    )
    def test_keeps_what_says_most(self, max_tokens: int, expected: str) -> None:
        path = ("Guide", "Install", "Linux", "From source")

        assert expected == fitting_path(path, Meter(len, 100), max_tokens)

    @pytest.mark.parametrize("path", [(), ("",), ("", "")])
    def test_nothing_stays_nothing(self, path: tuple[str, ...]) -> None:
        assert fitting_path(path, Meter(len, 100), 10) == ""


class TestShortenedTo:
    @pytest.mark.parametrize(
        ("text", "max_tokens", "expected"),
        [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("e\u0301e\u0301e\u0301", 4, "e\u0301…"),
            ("👩‍👩‍👧", 3, ""),
            ("a", 0, ""),
        ],
    )
    def test_tears_no_character(self, text: str, max_tokens: int, expected: str) -> None:
        assert expected == shortened_to(text, Meter(len, 100), max_tokens)
