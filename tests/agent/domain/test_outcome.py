from dataclasses import replace

import pytest

from services.agent.domain.outcome import Outcome, of_callee, of_claim, of_standing
from services.agent.domain.queue import Claim, Standing
from services.agent.domain.run_models import RunState, StopReason
from tests.contracts.agent_stores import memory_stores


@pytest.fixture
async def claim() -> Claim:
    stores = memory_stores()
    await stores.started()
    return await stores.claimed()


class TestOfClaim:
    async def test_a_run_is_worked_on(self, claim: Claim) -> None:
        assert of_claim(replace(claim, crashes=4), crash_limit=5) is None

    async def test_one_that_lost_too_many_workers_is_given_up(self, claim: Claim) -> None:
        assert of_claim(replace(claim, crashes=5), crash_limit=5) is Outcome.CRASH_LOOP

    async def test_one_that_is_to_be_cancelled_is_cancelled_whatever_else(
        self, claim: Claim
    ) -> None:
        asked = replace(
            claim, run=replace(claim.run, cancel_reason=StopReason.CANCELLED), crashes=9
        )

        assert of_claim(asked, crash_limit=5) is Outcome.CANCEL


class TestOfStanding:
    @pytest.mark.parametrize(
        ("standing", "outcome"),
        [
            (None, Outcome.LOST),
            (Standing(None, agent_gone=False), None),
            (Standing(StopReason.CANCELLED, agent_gone=False), Outcome.CANCEL),
            (Standing(StopReason.INTERRUPTED, agent_gone=False), Outcome.INTERRUPT),
            (Standing(None, agent_gone=True), Outcome.AGENT_GONE),
            (Standing(StopReason.CANCELLED, agent_gone=True), Outcome.CANCEL),
        ],
    )
    def test_what_a_standing_makes_of_a_run(
        self, standing: Standing | None, outcome: Outcome | None
    ) -> None:
        assert of_standing(standing) is outcome


class TestOfCallee:
    @pytest.mark.parametrize("caller", [None, Outcome.HAND_BACK, Outcome.LOST])
    def test_whoever_goes_on_with_the_caller_may_go_on_with_it(
        self, caller: Outcome | None
    ) -> None:
        assert of_callee(caller) is Outcome.HAND_BACK

    def test_it_is_interrupted_with_its_caller(self) -> None:
        assert of_callee(Outcome.INTERRUPT) is Outcome.INTERRUPT

    @pytest.mark.parametrize(
        "caller", [Outcome.CANCEL, Outcome.AGENT_GONE, Outcome.CRASH_LOOP, Outcome.FAIL]
    )
    def test_where_the_caller_ends_it_is_cancelled(self, caller: Outcome) -> None:
        assert of_callee(caller) is Outcome.CANCEL


class TestEnding:
    def test_who_ends_a_run_says_how(self) -> None:
        ended = {each: each.ending for each in Outcome if each.ending is not None}

        assert set(ended) == {
            Outcome.CANCEL,
            Outcome.INTERRUPT,
            Outcome.AGENT_GONE,
            Outcome.CRASH_LOOP,
            Outcome.FAIL,
        }
        for outcome, ending in ended.items():
            cancelled = outcome in {Outcome.CANCEL, Outcome.INTERRUPT}
            assert (ending.state is RunState.CANCELLED) is cancelled
            assert (ending.error is None) is cancelled
