from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.chat import ChatMessage
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.context import (
    Shown,
    chat_message,
    estimate_message,
    estimate_tokens,
    window,
)
from tests.agent.dialogue import case, draft, split_turn

CASE = "20-window-orphan-tool"


def user(text: str = "q") -> Draft:
    return Draft(Role.USER, text)


def says(text: str = "a") -> Draft:
    return Draft(Role.ASSISTANT, text)


def asks(*ids: str) -> Draft:
    calls = tuple(ToolCall(ToolCallId(id_), "look", "{}") for id_ in ids)
    return Draft(Role.ASSISTANT, "", tool_calls=calls)


def result(id_: str, text: str = "r") -> Draft:
    return Draft(Role.TOOL, text, tool_call_id=ToolCallId(id_), tool_name="look")


def texts(shown: Shown) -> list[str]:
    return [message.text for message in shown.messages]


def assert_paired(messages: Sequence[ChatMessage]) -> None:
    """Every call is answered once and directly, and every result has its call."""
    open_calls: list[ToolCallId] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.tool_call_id == open_calls.pop(0)
        else:
            assert open_calls == []
            open_calls = [call.id for call in message.tool_calls]
    assert open_calls == []


class TestCase20:
    def test_plain_starts_at_a_whole_turn(self) -> None:
        messages = [draft(each) for each in case(CASE, "plain.json")]
        expected = case(CASE, "expected.json")["plain.json"]
        history, turn = split_turn(messages)

        shown = window(history, turn, max_messages=expected["limit"])

        start = len(messages) - len(shown.messages)
        assert start in expected["accepted_starts"]
        assert shown.messages == tuple(chat_message(each) for each in messages[start:])
        assert_paired(shown.messages)

    def test_system_with_limit_3_starts_where_accepted(self) -> None:
        _, *rest = [draft(each) for each in case(CASE, "system.json")]
        accepted = case(CASE, "expected.json")["system.json"]["limit 3"]["accepted_starts_of_rest"]

        shown = window(*split_turn(rest), max_messages=3)

        assert len(rest) + 1 - len(shown.messages) in accepted
        assert shown.messages[-1].text == "u3"

    def test_limit_0_shows_the_newest_question_alone(self) -> None:
        _, *rest = [draft(each) for each in case(CASE, "system.json")]

        assert texts(window(*split_turn(rest), max_messages=0)) == ["u3"]

    def test_the_question_of_one_long_turn_stays(self) -> None:
        messages = [draft(each) for each in case(CASE, "one-long-turn.json")]
        expected = case(CASE, "expected.json")["one-long-turn.json"]

        shown = window([], messages, max_messages=expected["limit"])

        assert shown.messages[0].text == "Do the long job."
        assert shown.messages[-1] == chat_message(messages[expected["last_index"]])
        assert len(shown.messages) <= expected["limit"]
        assert len(shown.messages) + shown.left_out == len(messages)
        assert_paired(shown.messages)


class TestWindow:
    def test_siblings_of_a_call_are_never_parted(self) -> None:
        turn = [user(), asks("a", "b"), result("a"), result("b"), asks("c"), result("c", "new")]

        shown = window([], turn, max_messages=5)

        assert texts(shown) == ["q", "", "new"]
        assert shown.left_out == 3

    def test_the_newest_round_is_shown_even_past_the_limit(self) -> None:
        turn = [user(), asks("a", "b"), result("a"), result("b")]

        assert len(window([], turn, max_messages=0).messages) == 4

    def test_a_long_running_turn_pushes_out_the_turns_before(self) -> None:
        history = [user("old"), says("answer")]
        turn = [user(), asks("a"), result("a")]

        assert len(window(history, turn, max_messages=5).messages) == 5
        assert len(window(history, turn, max_messages=4).messages) == 3

    def test_a_turn_without_its_beginning_is_left_out(self) -> None:
        history = [result("x"), says("orphan"), user("one"), says("two")]

        assert texts(window(history, [user("q")], max_messages=20)) == ["one", "two", "q"]

    def test_the_token_bound_drops_the_oldest_turns(self) -> None:
        history = [user("长" * 500), says("a"), user("short"), says("b")]

        shown = window(history, [user("q")], max_messages=20, max_tokens=300)

        assert texts(shown) == ["short", "b", "q"]

    def test_the_question_is_shown_even_past_the_token_bound(self) -> None:
        assert len(window([], [user("长" * 500)], max_messages=20, max_tokens=10).messages) == 1

    def test_a_call_without_result_is_answered(self) -> None:
        history = [user(), asks("a", "b"), result("a")]

        shown = window(history, [user("next")], max_messages=20)

        assert_paired(shown.messages)
        assert texts(shown)[3:] == [
            "interrupted: there is no result",
            "(This message was not answered.)",
            "next",
        ]

    def test_a_notice_stands_where_the_answer_would(self) -> None:
        history = [user(), Draft(Role.SYSTEM, "Stopped.")]

        shown = window(history, [user("next")], max_messages=20)

        assert [message.role for message in shown.messages] == [
            Role.USER,
            Role.ASSISTANT,
            Role.USER,
        ]
        assert texts(shown)[1] == "(Stopped.)"

    def test_thoughts_are_kept_with_the_message(self) -> None:
        thought = Draft(Role.ASSISTANT, "a", metadata={"reasoning": "hm"})

        assert chat_message(thought).reasoning == "hm"

    @given(
        turns=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=5),
        limit=st.integers(0, 30),
        tokens=st.none() | st.integers(0, 200),
    )
    def test_invariants(self, turns: list[list[int]], limit: int, tokens: int | None) -> None:
        """Each turn is a list of rounds, each a number of calls; 0 is a plain message."""
        *past, running = [_turn(number, rounds) for number, rounds in enumerate(turns)]
        history = [message for turn in past for message in (*turn, says())]

        shown = window(history, running, max_messages=limit, max_tokens=tokens)

        everything = [chat_message(message) for message in (*history, *running)]
        must = 1 + len(_last_round(running))
        assert_paired(shown.messages)
        assert chat_message(running[0]) in shown.messages
        assert shown.messages[-1] == everything[-1]
        assert len(shown.messages) <= max(limit, must)
        if not shown.left_out:
            assert list(shown.messages) == everything[len(everything) - len(shown.messages) :]


def _turn(number: int, rounds: list[int]) -> list[Draft]:
    turn = [user(f"question {number}")]
    for place, calls in enumerate(rounds):
        ids = [f"{number}.{place}.{call}" for call in range(calls)]
        turn += [asks(*ids), *map(result, ids)] if ids else [says(f"aside {place}")]
    return turn


def _last_round(turn: list[Draft]) -> list[Draft]:
    places = [place for place, message in enumerate(turn) if message.role is Role.ASSISTANT]
    return turn[places[-1] :] if places else []


class TestEstimate:
    @pytest.mark.parametrize(
        ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("备份", 2), ("备份abcd", 3)]
    )
    def test_chinese_counts_by_character(self, text: str, tokens: int) -> None:
        assert estimate_tokens(text) == tokens

    def test_a_message_costs_its_calls_too(self) -> None:
        plain = estimate_message(chat_message(says("")))

        assert estimate_message(chat_message(asks("a"))) > plain > 0
