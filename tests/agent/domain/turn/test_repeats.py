import json
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.repeats import MOST_EQUAL_CALLS, Row, call_key, keys_of
from tests.agent.turns import PlainTool, call

A, B, C = ({"what": letter} for letter in "abc")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def asked(*replies: list[Any]) -> tuple[list[list[bool]], bool]:
    """Which calls of each reply are executed, and whether the model insisted in the last."""
    row, executed, number = Row(), [], 0
    for reply in replies:
        calls = []
        for arguments in reply:
            number += 1
            calls.append(call(f"c{number}", arguments=json.dumps(arguments)))
        row, refused = row.then(calls)
        executed.append([each.id not in refused for each in calls])
    return executed, row.insisted


class TestKeysOf:
    SPEC = PlainTool(
        properties={
            "what": {"type": "string"},
            "top_k": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        }
    ).spec

    @pytest.mark.parametrize(
        "other",
        [
            '{"what": "x", "top_k": "3"}',
            '{"top_k": 3.0, "what": "x"}',
            '{"what": "x", "top_k": 3, "tags": null}',
            """{'what': 'x', 'top_k': 3}""",
            '```json\n{"what": "x", "top_k": 3,}\n```',
            r'"{\"what\": \"x\", \"top_k\": 3}"',
        ],
    )
    def test_calls_that_mean_the_same_are_equal(self, other: str) -> None:
        key = keys_of({"look": self.SPEC})

        assert key(call("a", arguments='{"what": "x", "top_k": 3}')) == key(
            call("b", arguments=other)
        )
        assert key(call("a", arguments='{"what": "x", "top_k": 4}')) != key(
            call("b", arguments=other)
        )

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            *(("look", '{"what": []}'), ("look", "{broken"), ("look", ""), ("lock", '{"what": 5}')),
            ("look", '{"what": ' + "[" * 100_000),
        ],
    )
    def test_calls_that_call_nothing_are_equal_as_they_are_written(
        self, name: str, arguments: str
    ) -> None:
        asked = call("a", name, arguments)

        assert keys_of({"look": self.SPEC})(asked) == call_key(asked)


class TestCallKey:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ('{"query":"backup","top_k":3}', '{ "top_k": 3, "query": "backup" }'),
            ('{"a": {"b": 1, "c": [1, 2]}}', '{"a": {"c": [1, 2], "b": 1}}'),
            ('{"query": "\\u0062ackup"}', '{"query": "backup"}'),
            ('{"n": 1}', '{"n": 1.0}'),
            ('{"n": 100}', '{"n": 1e2}'),
            ('{"n": 0}', '{"n": -0.0}'),
            ('{"n": 0.5}', '{"n": 0.50}'),
            ('{"n": 1, "n": 2}', '{"n": 2}'),
            ("", "{}"),
            (" \n", "{ }"),
            ("{broken", " {broken "),
            ("[" * 100_000, "[" * 100_000),
            ("9" * 10_000, "9" * 10_000),
        ],
    )
    def test_equal_values_are_equal_however_they_are_written(self, one: str, other: str) -> None:
        assert call_key(call("a", arguments=one)) == call_key(call("b", arguments=other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ('{"offset": 0}', '{"offset": 10}'),
            ('{"n": 1}', '{"n": true}'),
            ('{"n": 1}', '{"n": "1"}'),
            ('{"n": 0}', '{"n": null}'),
            ('{"n": null}', "{}"),
            ('{"n": [1, 2]}', '{"n": [2, 1]}'),
            ('{"n": "a"}', '{"n": "A"}'),
            ("{broken", "{ broken"),
            ('{"n": 9007199254740993}', '{"n": 9007199254740992}'),
        ],
    )
    def test_other_values_are_not(self, one: str, other: str) -> None:
        assert call_key(call("a", arguments=one)) != call_key(call("a", arguments=other))

    def test_another_tool_is_another_call(self) -> None:
        assert call_key(call("a", "look")) != call_key(call("a", "search"))

    @given(value=JSON)
    def test_spelling_does_not_matter(self, value: object) -> None:
        dense = json.dumps(value, separators=(",", ":"))
        wide = json.dumps(value, indent=2, ensure_ascii=False)

        keys = {call_key(ToolCall(ToolCallId("c"), "t", text)) for text in (dense, wide)}

        assert len(keys) == 1


class TestRow:
    def test_three_equal_calls_are_executed_and_the_next_is_not(self) -> None:
        assert asked([A], [A], [A], [A]) == ([[True], [True], [True], [False]], False)

    def test_who_asks_again_after_the_notice_insists(self) -> None:
        executed, insisted = asked([A], [A], [A], [A], [A])

        assert (executed[4], insisted) == ([False], True)

    def test_other_arguments_begin_anew(self) -> None:
        assert asked([A], [A], [A], [B], [A], [A], [A]) == ([[True]] * 7, False)

    def test_an_equal_call_after_other_work_is_no_repetition(self) -> None:
        assert asked(*[[A], [B]] * 10) == ([[True]] * 20, False)

    def test_calls_side_by_side_count_one_by_one(self) -> None:
        executed, insisted = asked([A] * 5)

        assert executed == [[True, True, True, False, False]]
        assert not insisted, "the model has not seen the notice yet"
        assert asked([A] * 5, [A]) == ([executed[0], [False]], True)
        assert asked([A, A], [A, A])[0] == [[True, True], [True, False]]

    def test_the_same_calls_side_by_side_again_and_again_are_a_row(self) -> None:
        executed, insisted = asked(*[[A, B], [B, A]] * 2, [A, B])

        assert executed == [[True, True]] * 3 + [[False, False]] * 2
        assert insisted

    def test_a_reply_that_brings_something_new_is_other_work(self) -> None:
        assert asked([A, B], [A, C], [A, B], [A, C], [A, B])[0] == [[True, True]] * 5

    def test_one_of_two_may_be_asked_for_alone(self) -> None:
        assert asked([A, B], [A], [A], [A])[0] == [[True, True], [True], [True], [False]]

    def test_a_new_call_in_the_same_reply_does_not_excuse_the_repetition(self) -> None:
        assert asked([A], [A], [A], [A, B]) == ([[True], [True], [True], [False, True]], False)

    def test_who_turns_to_something_else_after_the_notice_does_not_insist(self) -> None:
        assert not asked([A], [A], [A], [A], [B])[1]

    @given(replies=st.lists(st.lists(st.sampled_from([A, B]), min_size=1, max_size=5)))
    def test_no_more_than_three_of_any_run_of_equal_calls_are_executed(
        self, replies: list[list[Any]]
    ) -> None:
        executed, _ = asked(*replies)

        flat = [
            (what["what"], done)
            for reply, reply_done in zip(replies, executed, strict=True)
            for what, done in zip(reply, reply_done, strict=True)
        ]
        for _, streak in groupby(flat, key=itemgetter(0)):
            assert sum(done for _, done in streak) <= MOST_EQUAL_CALLS
