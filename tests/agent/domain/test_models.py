import pytest

from services.agent.domain.models import RunLimits, Window, WindowStrategy

BUDGET, COMPACTION = WindowStrategy.TOKEN_BUDGET, WindowStrategy.COMPACTION


class TestWindow:
    @pytest.mark.parametrize(
        ("window", "messages", "at_once"),
        [
            (Window(), 20, 20),
            (Window(7), 7, 7),
            (Window(0), 0, 0),
            (Window(strategy=BUDGET), None, 0),
            (Window(7, strategy=BUDGET), 7, 0),
            (Window(strategy=COMPACTION), None, 0),
        ],
    )
    def test_only_the_window_bounds_messages_by_itself(
        self, window: Window, messages: int | None, at_once: int
    ) -> None:
        assert (window.messages, window.messages_at_once) == (messages, at_once)

    def test_what_is_unset_has_a_default(self) -> None:
        unset, given = Window(), Window(None, None, COMPACTION, 0.5, 0, 60)

        assert (unset.compacting_at, unset.kept_messages, unset.summary_tokens) == (0.9, 20, 1000)
        assert (given.compacting_at, given.kept_messages, given.summary_tokens) == (0.5, 0, 60)


class TestRunLimits:
    def test_what_is_unset_has_a_default(self) -> None:
        assert (RunLimits().steps, RunLimits().tool_calls) == (20, 100)
        assert (RunLimits(3, 4).steps, RunLimits(3, 4).tool_calls) == (3, 4)
