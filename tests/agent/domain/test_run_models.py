from dataclasses import replace
from datetime import UTC, datetime, timedelta

from services.agent.domain.models import AgentId, MessageId, RunId, RunLimits, SessionId
from services.agent.domain.run_models import (
    Cost,
    Parent,
    Run,
    RunState,
    Spent,
    StopReason,
    Usage,
)

RUN = Run(
    id=RunId("r"),
    session_id=SessionId("s"),
    tenant="acme",
    user_id="ann",
    agent_id=AgentId("a"),
    message_id=MessageId("m"),
    turn=1,
    state=RunState.IDLE,
    create_time=datetime(2026, 6, 1, tzinfo=UTC),
)


class TestBounds:
    def test_the_first_attempt_has_the_limits_as_they_are(self) -> None:
        limits = RunLimits(max_steps=3, max_tool_calls=4, max_tokens=500)

        assert limits == RUN.bounds(limits)

    def test_a_later_one_has_them_beside_what_was_used_before(self) -> None:
        run = replace(RUN, before=Spent(steps=20, calls=100, tokens=70))

        bounds = run.bounds(RunLimits(max_duration=timedelta(seconds=9)))

        assert (bounds.steps, bounds.tool_calls, bounds.max_tokens) == (40, 200, None)
        assert bounds.duration == timedelta(seconds=9)
        assert run.bounds(RunLimits(max_tokens=5)).max_tokens == 75

    def test_what_the_caller_has_left_bounds_a_sub_agent_too(self) -> None:
        left = RunLimits(max_tool_calls=4, max_tokens=500, max_duration=timedelta(seconds=9))
        run = replace(RUN, parent=Parent(RunId("p"), "k", (), left))

        wide = run.bounds(RunLimits(max_steps=7))
        narrow = run.bounds(RunLimits(7, 3, 400, timedelta(seconds=8)))

        assert wide == replace(left, max_steps=7)
        assert narrow == RunLimits(7, 3, 400, timedelta(seconds=8))

    def test_what_the_caller_leaves_open_bounds_nothing(self) -> None:
        run = replace(RUN, parent=Parent(RunId("p"), "k", (), RunLimits()))

        assert run.bounds(RunLimits(max_tokens=5)).max_tokens == 5
        assert run.bounds(RunLimits()).max_tokens is None


class TestRun:
    def test_it_tells_whether_it_was_asked_to_stop(self) -> None:
        assert not RUN.cancel_requested
        assert replace(RUN, cancel_reason=StopReason.INTERRUPTED).cancel_requested


class TestUsage:
    def test_all_of_it_adds_up(self) -> None:
        both = Usage(1, 2, 3, 4, Cost("EUR", 5)) + Usage(10, 20, 30, 40, Cost("EUR", 50))

        assert both == Usage(11, 22, 33, 44, Cost("EUR", 55))
        assert both.total == 33

    def test_a_cost_that_is_not_known_changes_none(self) -> None:
        cost = Cost("EUR", 5)

        assert (Usage(cost=cost) + Usage()).cost == (Usage() + Usage(cost=cost)).cost == cost
        assert (Usage() + Usage()).cost is None

    def test_of_two_currencies_the_later_is_told(self) -> None:
        assert (Usage(cost=Cost("EUR", 5)) + Usage(cost=Cost("USD", 7))).cost == Cost("USD", 7)

    def test_what_was_added_can_be_taken_away(self) -> None:
        first, second = Usage(1, 2, 3, 4, Cost("EUR", 5)), Usage(6, 7, 8, 9, Cost("EUR", 1))

        assert first + second - second == first
        assert (first - Usage(1)).cost == first.cost
