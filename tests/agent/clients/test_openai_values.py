from typing import Any

import pytest

from services.agent.clients.openai_values import arguments, mapping, sequence, text


class TestValues:
    @pytest.mark.parametrize("value", [None, 5, "x", [], True])
    def test_what_is_no_object_is_none(self, value: Any) -> None:
        assert mapping(value) is None

    @pytest.mark.parametrize("value", [None, 5, "x", {}, True])
    def test_what_is_no_list_is_an_empty_one(self, value: Any) -> None:
        assert list(sequence(value)) == []

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("x", "x"),
            ([{"text": "a"}, {"type": "image"}, {"text": {"a": 1}}, {"text": "b"}, "c"], "ab"),
            (None, ""),
            (5, ""),
            ({"text": "x"}, ""),
        ],
    )
    def test_a_text_comes_whole_or_in_parts(self, value: Any, expected: str) -> None:
        assert text(value) == expected

    @pytest.mark.parametrize(
        ("value", "expected"),
        [('{"a": ', '{"a": '), (None, ""), ({"a": "备"}, '{"a": "备"}'), ([1], "[1]"), (5, "5")],
    )
    def test_arguments_are_text_or_what_it_stands_for(self, value: Any, expected: str) -> None:
        assert arguments(value) == expected
