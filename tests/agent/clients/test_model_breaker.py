from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.agent.clients.model_breaker import Breaker, BreakerPolicy, BreakerState, Pass

POLICY = BreakerPolicy(failures=3, rest_seconds=1, most_seconds=8)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN

Step = tuple[str, float]
"""What happens, and when."""


EARLIER = Pass(0)
"""Of a call that was let through while CLOSED, before the first rest."""


def after(*steps: Step) -> Breaker:
    """The breaker after calls that are let through and end at once."""
    breaker = Breaker(POLICY)
    for what, now in steps:
        breaker = happened(breaker, what, now)
    return breaker


def happened(breaker: Breaker, what: str, now: float) -> Breaker:
    after, passed = let_through(breaker, now)
    match what.split():
        case ["fails"]:
            return after.failed(passed, now)
        case ["fails", "asking", seconds]:
            return after.failed(passed, now, asked=float(seconds))
        case ["answers"]:
            return after.answered(passed)
        case ["goes"]:
            return after.given_back(passed, now)
        case _:
            return after


def let_through(breaker: Breaker, now: float) -> tuple[Breaker, Pass]:
    admitted = breaker.admit(now)
    assert admitted is not None, "not let through"
    return admitted


DOWN: Sequence[Step] = (("fails", 0), ("fails", 0), ("fails", 0))


class TestBreaker:
    """T-D17: what the states of a breaker mean."""

    @pytest.mark.parametrize(
        ("steps", "now", "state", "wait"),
        [
            ([], 0, CLOSED, 0),
            ([("fails", 0), ("fails", 0)], 0, CLOSED, 0),
            ([*DOWN[:2], ("answers", 0), *DOWN[:2]], 0, CLOSED, 0),
            ([*DOWN], 0, OPEN, 1),
            ([*DOWN], 0.25, OPEN, 0.75),
            ([*DOWN], 5, OPEN, 0),
            ([*DOWN, ("asks", 1)], 1, HALF_OPEN, 8),
            ([*DOWN, ("asks", 1)], 9, HALF_OPEN, 0),
            ([*DOWN, ("answers", 1)], 1, CLOSED, 0),
            ([*DOWN, ("answers", 1), *DOWN[:2]], 1, CLOSED, 0),
            ([*DOWN, ("goes", 1)], 1, OPEN, 0),
            ([*DOWN, ("fails", 1)], 1, OPEN, 2),
            ([*DOWN, ("fails", 1), ("fails", 3)], 3, OPEN, 4),
            ([*DOWN, ("fails", 1), ("fails", 3), ("fails", 7), ("fails", 20)], 20, OPEN, 8),
            ([*DOWN, ("fails", 1), ("answers", 3), *[("fails", 3)] * 3], 3, OPEN, 1),
            ([("fails asking 5", 0)], 0, OPEN, 5),
            ([("fails asking 5", 0), ("fails asking 2", 5)], 5, OPEN, 2),
            ([("fails asking 5", 0), ("answers", 5)], 5, CLOSED, 0),
            ([*DOWN[:2], ("fails asking 0.5", 0)], 0, OPEN, 1),
            ([*DOWN[:2], ("fails asking 60", 0)], 0, OPEN, 60),
        ],
    )
    def test_states(
        self, steps: Sequence[Step], now: float, state: BreakerState, wait: float
    ) -> None:
        breaker = after(*steps)

        assert breaker.state is state
        assert breaker.wait(now) == wait

    def test_one_probe_is_let_through_until_it_takes_too_long(self) -> None:
        probing = after(*DOWN, ("asks", 1))

        assert probing.admit(8.5) is None
        assert probing.admit(9) is not None

    def test_outcomes_of_calls_from_before_say_nothing(self) -> None:
        down = after(*DOWN)

        assert down.answered(EARLIER) == down
        assert down.failed(EARLIER, 0.5) == down

    def test_a_wish_to_be_left_alone_counts_whichever_call_was_told(self) -> None:
        down = after(*DOWN)

        assert down.failed(EARLIER, 0, asked=5).wait(0) == 5
        assert down.failed(EARLIER, 0, asked=0.5).wait(0) == 1

    def test_a_probe_from_before_a_wish_does_not_end_the_rest(self) -> None:
        probing, probe = let_through(after(*DOWN), 1)
        told = probing.failed(EARLIER, 1.5, asked=5)

        assert told.answered(probe).wait(1.5) == 5

    def test_rests_are_spread(self) -> None:
        breaker = after(*DOWN[:2])

        waits = [breaker.failed(EARLIER, 0, spread=spread).wait(0) for spread in (0, 0.5, 1)]

        assert waits == [0.5, 0.75, 1]


class TestLoad:
    @given(
        st.lists(st.floats(0, 2), min_size=1, max_size=300),
        st.floats(0, 1),
    )
    def test_a_dead_server_is_asked_seldom(self, gaps: list[float], spread: float) -> None:
        """T-D17: however many calls want it, each after a short while."""
        breaker, now, asked = Breaker(POLICY), 0.0, 0
        for gap in gaps:
            now += gap
            admitted = breaker.admit(now)
            if admitted is not None:
                asked += 1
                breaker = admitted[0].failed(admitted[1], now, spread=spread)

        doublings = 3
        assert asked <= POLICY.failures + doublings + now / (POLICY.most_seconds / 2) + 1


@dataclass(frozen=True)
class Call:
    """A call under way."""

    passed: Pass
    begun: float


class BreakerMachine(RuleBasedStateMachine):
    """T-D17: calls that come, end or vanish in any order, and a server that asks for rest."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(POLICY)
        self.now = 0.0
        self.calls: list[Call] = []
        self.alone_until = 0.0

    @rule(seconds=st.sampled_from([0.25, 1, 2, 4, 8, 30]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_call_comes(self) -> None:
        admitted = self.breaker.admit(self.now)
        assert (admitted is None) == (self.breaker.wait(self.now) > 0)
        if admitted is None:
            return
        after, passed = admitted
        assert self.now >= self.alone_until
        assert bool(passed.probe) == (self.breaker.state is not CLOSED)
        if passed.probe:
            others = [call for call in self.calls if self.current(call) and call.passed.probe]
            assert all(self.now - call.begun >= POLICY.most_seconds for call in others)
        self.calls.append(Call(passed, self.now))
        self.breaker = after

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        asked=st.sampled_from([0, 0, 0.5, 5, 60]),
        spread=st.sampled_from([0, 0.5, 1]),
    )
    def a_call_fails(self, data: st.DataObject, asked: float, spread: float) -> None:
        call = self.taken(data)
        before = self.breaker
        self.breaker = before.failed(call.passed, self.now, asked=asked, spread=spread)
        if asked:
            self.alone_until = max(self.alone_until, self.now + asked)
            assert self.breaker.wait(self.now) >= asked
        elif call.passed.period != before.period:
            assert self.breaker == before
        elif before.state is not CLOSED:
            assert self.breaker.state is OPEN

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_is_answered(self, data: st.DataObject) -> None:
        call = self.taken(data)
        expected = CLOSED if self.current(call) else self.breaker.state
        self.breaker = self.breaker.answered(call.passed)
        assert self.breaker.state is expected

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_vanishes(self, data: st.DataObject) -> None:
        call = self.taken(data)
        newest = self.breaker.probe and self.breaker.probe == call.passed.probe
        self.breaker = self.breaker.given_back(call.passed, self.now)
        if newest:
            assert self.breaker.admit(self.now) is not None

    @invariant()
    def it_is_asked_again_some_time(self) -> None:
        longest = max(POLICY.most_seconds, self.alone_until - self.now)
        assert self.breaker.wait(self.now) <= longest
        assert self.breaker.admit(self.now + longest) is not None

    @invariant()
    def failures_stay_under_the_limit(self) -> None:
        assert self.breaker.failures < POLICY.failures

    def current(self, call: Call) -> bool:
        return call.passed.period == self.breaker.period

    def taken(self, data: st.DataObject) -> Call:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
