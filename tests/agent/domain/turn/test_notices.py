from datetime import timedelta

import pytest

from services.agent.domain.models import RunLimits
from services.agent.domain.run_models import StopReason
from services.agent.domain.turn.notices import at_once_notice, limit_notice


class TestLimitNotice:
    @pytest.mark.parametrize(
        ("reason", "limits", "words"),
        [
            (StopReason.MAX_STEPS, RunLimits(max_steps=1), "limit of 1 step before"),
            (StopReason.MAX_STEPS, RunLimits(), "limit of 20 steps before"),
            (StopReason.MAX_TOOL_CALLS, RunLimits(), "limit of 100 tool calls before"),
            (StopReason.MAX_TOKENS, RunLimits(max_tokens=9000), "limit of 9,000 tokens before"),
            (StopReason.MAX_TOKENS, RunLimits(), "cut off by its own length limit"),
            (StopReason.MAX_DURATION, RunLimits(), "time limit of 600 seconds"),
            (StopReason.MAX_OUTPUT, RunLimits(), "limit of what one run may store"),
            (StopReason.REPEATED_CALL, RunLimits(), "the same tool call"),
            (
                StopReason.MAX_DURATION,
                RunLimits(max_duration=timedelta(seconds=1)),
                "time limit of 1 second before",
            ),
        ],
    )
    def test_it_names_the_limit(self, reason: StopReason, limits: RunLimits, words: str) -> None:
        assert words in limit_notice(reason, limits)

    @pytest.mark.parametrize("reason", list(StopReason))
    def test_there_is_a_sentence_for_every_reason(self, reason: StopReason) -> None:
        assert limit_notice(reason, RunLimits()).endswith(".")


class TestAtOnceNotice:
    def test_it_names_the_limit(self) -> None:
        assert "more than 64 tool calls at once" in at_once_notice(64)
