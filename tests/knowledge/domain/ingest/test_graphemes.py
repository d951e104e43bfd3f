import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from services.knowledge.domain.ingest.graphemes import (
    MAX_CLUSTER,
    grapheme_end,
    is_blank,
    is_border,
    last_border,
    shortened,
)

FAMILY = "👩‍👩‍👧‍👦"
ACUTE = "e\u0301"
mixed = st.lists(
    st.sampled_from(
        [FAMILY, ACUTE, "a", "中", " ", "🇨🇳", "🇩", "\u200d", "\u0301", "नि", "\n", "。"]
    ),
    max_size=20,
).map("".join)


class TestIsBlank:
    @pytest.mark.parametrize(
        "text",
        ["", " ", "\n\t ", "\u3000\xa0\u2028", "\x0c\x85", "\u200b\ufeff\u200d", "\u00ad", "\0"],
    )
    def test_what_shows_nothing(self, text: str) -> None:
        assert is_blank(text)

    @pytest.mark.parametrize("text", ["a", " 中 ", "---", "\ufffd", "\u0301", "😀", "&nbsp;"])
    def test_what_shows_something(self, text: str) -> None:
        assert not is_blank(text)

    def test_a_stretch(self) -> None:
        assert is_blank("a  b", 1, 3)
        assert not is_blank("a  b", 1, 4)


class TestLastBorder:
    @pytest.mark.parametrize(
        ("text", "limit", "expected"),
        [
            ("abc", 2, 2),
            (f"a{ACUTE}b", 2, 1),
            (f"a{ACUTE}b", 3, 3),
            (f"a{FAMILY}b", 5, 1),
            (f"{FAMILY}b", 3, 7),
            ("🇨🇳🇩🇪", 3, 2),
            ("abc", 9, 3),
        ],
    )
    def test_no_character_is_torn(self, text: str, limit: int, expected: int) -> None:
        assert expected == last_border(text, 0, limit)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(mixed.filter(bool), st.integers(1, 40))
    def test_is_a_border_of_the_standard(self, text: str, limit: int) -> None:
        borders = [cluster.end() for cluster in regex.finditer(r"\X", text)]

        found = last_border(text, 0, limit)

        assert max([end for end in borders if end <= limit], default=borders[0]) == found

    def test_a_cluster_of_thousands_is_no_character(self) -> None:
        text = "e" + "\u0301" * 5000

        assert grapheme_end(text, 0) == MAX_CLUSTER
        assert last_border(text, 0, 1000) == 1000 - 1000 % MAX_CLUSTER

    @pytest.mark.parametrize(
        "text", ["🇨🇳" * 100_000, "e" + "\u0301" * 400_000, "👩\u200d" * 100_000]
    )
    def test_looks_no_further_than_it_must(self, text: str) -> None:
        begin = time.process_time()

        for start in range(0, 20_000, 100):
            last_border(text, start, start + 100)

        assert time.process_time() - begin < 2


class TestIsBorder:
    @pytest.mark.parametrize(
        ("text", "at", "expected"),
        [
            *(("ab", 0, True), ("ab", 1, True), ("ab", 2, True), ("", 0, True)),
            *(
                (f" {ACUTE}", 1, True),
                (" \u0301", 1, False),
                ("。\u0301", 1, False),
                ("中\ufe00", 1, False),
            ),
            *(("a\n\u0301", 2, True), ("中文", 1, True), ("中 ", 1, True)),
        ],
    )
    def test_beside_spaces_signs_and_ideographs(self, text: str, at: int, expected: bool) -> None:
        assert expected is is_border(text, at)


class TestShortened:
    @pytest.mark.parametrize(
        ("text", "limit", "expected"),
        [
            *(("abc", 3, "abc"), ("abcd", 3, "ab…"), (f"a{ACUTE}bc", 3, "a…"), ("", 1, "")),
            *((f"{FAMILY}bc", 4, f"{FAMILY[:3]}…"),),
        ],
    )
    def test_keeps_to_the_limit(self, text: str, limit: int, expected: str) -> None:
        assert expected == shortened(text, limit)
