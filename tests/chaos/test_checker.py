"""The checker lets what is right pass, and names each promise that is broken."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from tests.chaos.checker import violations
from tests.chaos.history import (
    Delivery,
    Effect,
    History,
    MessageRow,
    Outcome,
    RunRow,
    Submit,
    Subscription,
)

SESSION = "session-1"
CALLS = {"look-0": "look", "pay-0": "pay"}


def said(
    sequence: int,
    role: str,
    text: str = "",
    *,
    run: str = "run-1",
    calls: Mapping[str, str] = MappingProxyType({}),
    call_id: str | None = None,
) -> MessageRow:
    """A message of a run."""
    return MessageRow(SESSION, sequence, f"message-{sequence}", run, role, text, calls, call_id)


def turn(run: str, text: str, *, after: int = 0) -> list[MessageRow]:
    """One run of two steps with two tool calls."""
    return [
        said(after + 1, "user", text, run=run),
        said(after + 2, "assistant", f"{text}/0", run=run, calls=CALLS),
        said(after + 3, "tool", run=run, call_id="look-0"),
        said(after + 4, "tool", run=run, call_id="pay-0"),
        said(after + 5, "assistant", f"{text}/1", run=run),
    ]


def received(messages: list[MessageRow]) -> Subscription:
    """What a subscriber has that was never cut."""
    deliveries = [Delivery(row.sequence, row.id, row.run_id) for row in messages]
    return Subscription("subscriber-1", SESSION, deliveries, {"run-1": {"finished"}})


def history(messages: list[MessageRow] | None = None, **more: Any) -> History:
    """Two runs that went well, or what is made of them."""
    rows = turn("run-1", "a") + turn("run-2", "b", after=5) if messages is None else messages
    good = History(
        submits=[
            Submit(SESSION, "a", Outcome.OK, "run-1"),
            Submit(SESSION, "b", Outcome.OK, "run-2"),
        ],
        runs=[
            RunRow("run-1", SESSION, 1, "finished"),
            RunRow("run-2", SESSION, 6, "finished"),
        ],
        messages=rows,
        effects=[
            Effect(tool, f"{run}:{call}")
            for run in ("run-1", "run-2")
            for call, tool in CALLS.items()
        ],
        subscriptions=[received(rows)],
        once_only=frozenset({"pay"}),
    )
    return replace(good, **more)


def broken(found: History) -> set[str]:
    """The names of the invariants that a history breaks."""
    return {violation.invariant for violation in violations(found)}


GOOD = history()
ROWS = list(GOOD.messages)


def without(*sequences: int) -> list[MessageRow]:
    """The messages with some missing and the others counted anew."""
    left = [row for row in ROWS if row.sequence not in sequences]
    return [replace(row, sequence=place) for place, row in enumerate(left, start=1)]


def doubled(sequence: int) -> list[MessageRow]:
    """The messages with one there twice, as a worker makes it that should have stopped."""
    rows = [*ROWS[:sequence], replace(ROWS[sequence - 1], id="again"), *ROWS[sequence:]]
    return [replace(row, sequence=place) for place, row in enumerate(rows, start=1)]


class TestGood:
    def test_all_kept(self) -> None:
        assert violations(GOOD) == []

    def test_an_unknown_submit_may_be_there_or_not(self) -> None:
        one = [GOOD.submits[0], Submit(SESSION, "b", Outcome.UNKNOWN)]
        none = [*GOOD.submits, Submit(SESSION, "c", Outcome.UNKNOWN)]

        assert [violations(history(submits=each)) for each in (one, none)] == [[], []]

    def test_a_call_that_was_cut_off_may_have_been_done_or_not(self) -> None:
        rows = [replace(row, error="unknown_outcome") if row.sequence == 4 else row for row in ROWS]

        assert violations(history(rows)) == []
        assert (
            violations(history(rows, effects=[e for e in GOOD.effects if e.key != "run-1:pay-0"]))
            == []
        )

    def test_what_is_idempotent_may_be_done_again_under_its_key(self) -> None:
        assert violations(history(effects=[*GOOD.effects, Effect("look", "run-1:look-0")])) == []

    def test_a_run_may_end_with_a_notice(self) -> None:
        rows = [*ROWS[:4], said(5, "system", "Stopped."), *ROWS[5:]]
        runs = [replace(GOOD.runs[0], state="cancelled"), GOOD.runs[1]]
        told = replace(received(rows), ended={"run-1": {"cancelled"}})

        assert violations(history(rows, runs=runs, subscriptions=[told])) == []


class TestBad:
    @pytest.mark.parametrize(
        ("invariant", "found"),
        [
            (
                "I1 lost",
                history(submits=[*GOOD.submits, Submit(SESSION, "c", Outcome.OK, "run-3")]),
            ),
            ("I1 refused", history(submits=[GOOD.submits[0], Submit(SESSION, "b", Outcome.FAIL)])),
            ("I1 unsent", history(submits=GOOD.submits[:1])),
            (
                "I1 other",
                history(submits=[GOOD.submits[0], replace(GOOD.submits[1], run_id="run-1")]),
            ),
            ("I1 no run", history(runs=GOOD.runs[:1])),
            ("I2 gap", history([replace(row, sequence=row.sequence + 1) for row in ROWS])),
            ("I4 unended", history(runs=[GOOD.runs[0], replace(GOOD.runs[1], state="thinking")])),
            ("I7 together", history(held_together=[(SESSION, ["run-1", "run-2"])])),
            (
                "I8 dear",
                history(runs=[GOOD.runs[0], replace(GOOD.runs[1], tokens=9, token_limit=8)]),
            ),
            ("I9 stuck", history(stuck=["run-2"])),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_one_promise_is_named(self, invariant: str, found: History) -> None:
        found = replace(found, subscriptions=[replace(received(list(found.messages)), ended={})])

        assert broken(found) == {invariant.partition(" ")[0]}

    def test_a_message_that_was_committed_twice(self) -> None:
        assert "I1" in broken(history(doubled(1)))

    def test_a_step_that_was_recorded_twice(self) -> None:
        assert {"I5", "D3"} <= broken(history(doubled(2)))

    def test_a_result_that_was_recorded_twice(self) -> None:
        assert "I5" in broken(history(doubled(3)))

    def test_a_result_that_is_missing(self) -> None:
        assert "I5" in broken(history(without(3)))

    def test_an_answer_that_was_given_twice(self) -> None:
        assert {"I4", "D3"} <= broken(history(doubled(5)))

    def test_a_run_that_speaks_after_its_end(self) -> None:
        rows = [*ROWS[:4], said(5, "system", "Stopped."), said(6, "tool", call_id="x")]

        assert "I4" in broken(history(rows))

    def test_two_ends_that_were_told(self) -> None:
        told = replace(received(ROWS), ended={"run-1": {"cancelled"}})

        assert broken(history(subscriptions=[told])) == {"I4"}

    @pytest.mark.parametrize("fault", ["gap", "repeat", "order", "short", "foreign"])
    def test_a_list_that_is_no_prefix(self, fault: str) -> None:
        right = received(ROWS).received
        foreign = replace(right[0], message_id="other")
        wrong = {
            "gap": right[:3] + right[4:],
            "repeat": right[:3] + right[2:],
            "order": [*right[:2], right[3], right[2], *right[4:]],
            "short": right[:-1],
            "foreign": [foreign, *right[1:]],
        }[fault]

        assert broken(history(subscriptions=[Subscription("s", SESSION, wrong)])) == {"I3"}

    def test_what_must_not_happen_twice(self) -> None:
        assert broken(history(effects=[*GOOD.effects, Effect("pay", "run-1:pay-0")])) == {"I6"}

    def test_what_is_said_to_be_done_and_never_was(self) -> None:
        assert broken(history(effects=GOOD.effects[:-1])) == {"I6"}

    def test_a_repeat_under_another_key(self) -> None:
        again = Effect("look", "run-1:7:look-0")

        assert broken(history(effects=[*GOOD.effects, again])) == {"I6"}

    def test_what_was_done_before_it_was_recorded(self) -> None:
        assert broken(history(effects=[*GOOD.effects, Effect("pay", "run-1:pay-9")])) == {"I6"}

    def test_a_violation_shows_its_rows(self) -> None:
        [violation] = violations(history(stuck=["run-2"]))

        assert str(violation) == "I9: 1 runs were left lying\n    run-2"
