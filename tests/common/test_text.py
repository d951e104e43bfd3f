"""Text for stores, terminals and logs."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.text import Json, clean, clean_json, json_line, shortened

ANY_TEXT = st.text(st.characters(exclude_categories=()))


class TestClean:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("plain 中文 🎉\n\t\x1b", "plain 中文 🎉\n\t\x1b"),
            ("a\x00b", "a\ufffdb"),
            ("\ud83d", "\ufffd"),
            ("", ""),
        ],
    )
    def test_only_what_cannot_be_stored_is_replaced(self, text: str, expected: str) -> None:
        assert clean(text) == expected

    @given(ANY_TEXT)
    def test_what_comes_out_is_utf8_without_nul_and_as_long(self, text: str) -> None:
        cleaned = clean(text)

        assert b"\0" not in cleaned.encode()
        assert len(cleaned) == len(text)


class TestCleanJson:
    def test_every_string_is_cleaned_at_any_depth(self) -> None:
        value: Json = {"a\x00": ["b\x00", {"c": "\ud800"}], "n": 1, "t": True, "z": None}

        assert clean_json(value) == {
            "a\ufffd": ["b\ufffd", {"c": "\ufffd"}],
            "n": 1,
            "t": True,
            "z": None,
        }

    def test_numbers_that_json_lacks_become_null(self) -> None:
        assert clean_json([math.nan, math.inf, -math.inf, 1.5]) == [None, None, None, 1.5]


class TestShortened:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("short", "short"),
            ("exactly 10", "exactly 10"),
            ("eleven char", "eleven …"),
            ("中文中文", "中文…"),
            ("中文中", "中文中"),
        ],
    )
    def test_text_over_the_limit_ends_in_an_ellipsis(self, text: str, expected: str) -> None:
        assert shortened(text, 10) == expected

    @given(ANY_TEXT, st.integers(3, 40))
    def test_it_never_takes_more_bytes(self, text: str, most: int) -> None:
        assert len(shortened(text, most).encode()) <= most


class TestJsonLine:
    def test_what_people_read_stays_readable(self) -> None:
        assert json_line({"a": "中文 é"}) == '{"a": "中文 é"}'

    @pytest.mark.parametrize(
        "character", ["\n", "\x1b", "\x7f", "\x9b", "\x85", "\u2028", "\ud800"]
    )
    def test_what_terminals_and_line_splitters_act_on_is_escaped(self, character: str) -> None:
        assert json_line(character) == f'"{json.dumps(character)[1:-1]}"'.replace("\x7f", "\\u007f")

    @given(st.dictionaries(ANY_TEXT, ANY_TEXT))
    def test_it_reads_back_as_it_was_from_one_line(self, value: dict[str, str]) -> None:
        line = json_line(value)

        assert len(line.splitlines()) == 1
        assert json.loads(line.encode()) == value

    def test_what_json_does_not_know_is_left_to_the_caller(self) -> None:
        assert json_line({1j}, default=sorted_texts) == '["1j"]'


def sorted_texts(value: set[complex]) -> list[str]:
    return sorted(map(str, value))
