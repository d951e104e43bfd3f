from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.chat import ChatMessage
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.context import (
    LEAST_RESULT_TOKENS,
    Room,
    Shown,
    chat_message,
    cost,
    kept_from,
    whole_cost,
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

        shown = window(history, turn, Room(expected["limit"]))

        start = len(messages) - len(shown.messages)
        assert start in expected["accepted_starts"]
        assert shown.messages == tuple(chat_message(each) for each in messages[start:])
        assert_paired(shown.messages)

    def test_system_with_limit_3_starts_where_accepted(self) -> None:
        _, *rest = [draft(each) for each in case(CASE, "system.json")]
        accepted = case(CASE, "expected.json")["system.json"]["limit 3"]["accepted_starts_of_rest"]

        shown = window(*split_turn(rest), Room(3))

        assert len(rest) + 1 - len(shown.messages) in accepted
        assert shown.messages[-1].text == "u3"

    def test_limit_0_shows_the_newest_question_alone(self) -> None:
        _, *rest = [draft(each) for each in case(CASE, "system.json")]

        assert texts(window(*split_turn(rest), Room(0))) == ["u3"]

    def test_the_question_of_one_long_turn_stays(self) -> None:
        messages = [draft(each) for each in case(CASE, "one-long-turn.json")]
        expected = case(CASE, "expected.json")["one-long-turn.json"]

        shown = window([], messages, Room(expected["limit"]))

        assert shown.messages[0].text == "Do the long job."
        assert shown.messages[-1] == chat_message(messages[expected["last_index"]])
        assert len(shown.messages) <= expected["limit"]
        assert len(shown.messages) + shown.left_out == len(messages)
        assert_paired(shown.messages)


class TestWindow:
    def test_siblings_of_a_call_are_never_parted(self) -> None:
        turn = [user(), asks("a", "b"), result("a"), result("b"), asks("c"), result("c", "new")]

        shown = window([], turn, Room(5))

        assert texts(shown) == ["q", "", "new"]
        assert shown.left_out == 3

    def test_the_newest_round_is_shown_even_past_the_limit(self) -> None:
        turn = [user(), asks("a", "b"), result("a"), result("b")]

        assert len(window([], turn, Room(0)).messages) == 4

    def test_a_long_running_turn_pushes_out_the_turns_before(self) -> None:
        history = [user("old"), says("answer")]
        turn = [user(), asks("a"), result("a")]

        assert len(window(history, turn, Room(5)).messages) == 5
        assert len(window(history, turn, Room(4)).messages) == 3

    def test_a_turn_without_its_beginning_is_left_out(self) -> None:
        history = [result("x"), says("orphan"), user("one"), says("two")]

        assert texts(window(history, [user("q")], Room(20))) == ["one", "two", "q"]

    def test_the_token_bound_drops_the_oldest_turns(self) -> None:
        history = [user("长" * 500), says("a"), user("short"), says("b")]

        shown = window(history, [user("q")], Room(20, 300))

        assert texts(shown) == ["short", "b", "q"]

    def test_the_question_is_shown_even_past_the_token_bound(self) -> None:
        assert len(window([], [user("长" * 500)], Room(20, 10)).messages) == 1

    def test_a_call_without_result_is_answered(self) -> None:
        history = [user(), asks("a", "b"), result("a")]

        shown = window(history, [user("next")], Room(20))

        assert_paired(shown.messages)
        assert texts(shown)[3:] == [
            "interrupted: there is no result",
            "(This message was not answered.)",
            "next",
        ]

    def test_a_notice_stands_where_the_answer_would(self) -> None:
        history = [user(), Draft(Role.SYSTEM, "Stopped.")]

        shown = window(history, [user("next")], Room(20))

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

        shown = window(history, running, Room(limit, tokens))

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


class TestResults:
    """One result can be larger than all that a small model reads."""

    def test_the_newest_results_are_cut_to_the_room_there_is(self) -> None:
        turn = [user(), asks("a", "b"), result("a", "x" * 300_000), result("b", "small")]

        shown = window([], turn, Room(20, 1000))

        assert shown.messages[-1].text == "small"
        cut = shown.messages[2].text
        assert cut.endswith("[cut here to fit the model: 300000 characters in all]")
        assert 900 < cost(shown.messages) <= 1000

    def test_large_results_share_what_the_small_ones_leave(self) -> None:
        turn = [user(), asks("a", "b", "c"), result("a", "x" * 9000), result("b", "y" * 9000)]
        turn.append(result("c", "z" * 400))

        shown = window([], turn, Room(20, 1000))

        lengths = [len(message.text) for message in shown.messages[2:]]
        assert lengths[0] == lengths[1] > 400 == lengths[2]

    def test_what_fits_is_not_cut(self) -> None:
        turn = [user(), asks("a"), result("a", "x" * 3000)]

        assert window([], turn, Room(20, 1000)).messages[-1].text == "x" * 3000

    def test_a_mark_is_left_of_each_where_there_is_no_room_at_all(self) -> None:
        turn = [user("q" * 8000), asks("a"), result("a", "x" * 9000)]

        assert "9000 characters in all" in window([], turn, Room(20, 100)).messages[-1].text

    def test_older_rounds_are_left_out_before_the_newest_is_cut(self) -> None:
        turn = [user(), asks("a"), result("a", "x" * 2000), asks("b"), result("b", "y" * 3000)]

        shown = window([], turn, Room(20, 1000))

        assert texts(shown) == ["q", "", "y" * 3000]
        assert shown.left_out == 2


REMEMBERED = (ChatMessage(Role.USER, "first"), ChatMessage(Role.ASSISTANT, "(summary)"))


class TestRemembered:
    def test_it_stands_before_the_turns_that_are_shown(self) -> None:
        shown = window([user("old"), says()], [user()], Room(20, 1000), remembered=REMEMBERED)

        assert texts(shown) == ["first", "(summary)", "old", "a", "q"]
        assert shown.remembered

    def test_it_takes_no_place_of_a_message(self) -> None:
        shown = window([user("old"), says()], [user()], Room(3), remembered=REMEMBERED)

        assert texts(shown) == ["first", "(summary)", "old", "a", "q"]

    def test_it_is_shown_before_older_rounds_of_the_running_turn(self) -> None:
        turn = [user(), asks("a"), result("a", "x" * 400), asks("b"), result("b")]

        shown = window([], turn, Room(20, 100), remembered=REMEMBERED)

        assert texts(shown) == ["first", "(summary)", "q", "", "r"]
        assert shown.left_out == 2

    def test_it_is_left_out_where_the_question_needs_the_room(self) -> None:
        shown = window([], [user("x" * 4000)], Room(20, 1010), remembered=REMEMBERED)

        assert len(shown.messages) == 1
        assert not shown.remembered

    def test_before_a_question_there_is_only_what_was_before(self) -> None:
        shown = window([user("old"), says()], [], Room(20), remembered=REMEMBERED)

        assert texts(shown) == ["first", "(summary)", "old", "a"]

    @given(
        turns=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=5),
        sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
        tokens=st.integers(400, 3000),
    )
    def test_the_budget_holds_and_nothing_that_must_be_shown_is_lost(
        self, turns: list[list[int]], sizes: list[int], tokens: int
    ) -> None:
        *past, running = [_turn(number, rounds) for number, rounds in enumerate(turns)]
        history = _sized([message for turn in past for message in (*turn, says())], sizes)
        running = _sized(running, sizes)

        shown = window(history, running, Room(None, tokens), remembered=REMEMBERED)

        assert_paired(shown.messages)
        assert chat_message(running[0]) in shown.messages
        assert list(shown.messages[:2]) == list(REMEMBERED)
        newest = len(_last_round(running))
        least = 1000 * (newest == 1) + newest * (LEAST_RESULT_TOKENS + 20)
        assert cost(shown.messages) <= max(tokens, least + cost((chat_message(running[0]),)))


def _sized(messages: list[Draft], sizes: list[int]) -> list[Draft]:
    """Results as long as is told, one after the other; all else as short as it is."""
    return [
        replace(message, text="x" * sizes[place % len(sizes)])
        if message.role is Role.TOOL
        else message
        for place, message in enumerate(messages)
    ]


class TestKeptFrom:
    HISTORY = (user("one"), says(), user("two"), asks("a"), result("a"), says(), user("3"), says())

    @pytest.mark.parametrize(("messages", "place"), [(1, 8), (2, 6), (5, 6), (6, 2), (8, 0)])
    def test_whole_turns_are_kept(self, messages: int, place: int) -> None:
        assert kept_from(self.HISTORY, Room(messages)) == place

    def test_tokens_bound_them_too(self) -> None:
        assert kept_from(self.HISTORY, Room(20, 12)) == 6

    def test_the_place_is_where_the_window_begins(self) -> None:
        assert window(self.HISTORY, [user()], Room(7)).since == kept_from(self.HISTORY, Room(6))

    def test_everything_is_counted_in_the_whole_cost(self) -> None:
        whole = whole_cost(self.HISTORY, [user()])

        assert whole == cost(window(self.HISTORY, [user()], Room()).messages)
