from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.agent.domain.ledger import (
    ToolCallRecord,
    ToolCallState,
    cut_off,
    idempotency_key,
    outcome_of,
    read_position,
)
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import RunId, ToolCallId
from services.common.text import Json

RECORD = ToolCallRecord(
    run_id=RunId("r"),
    step=12,
    place=3,
    tool_call_id=ToolCallId("a:b"),
    tool_name="look",
    state=ToolCallState.PLANNED,
    plan_time=datetime(2026, 6, 1, tzinfo=UTC),
)


def result(**metadata: Json) -> Draft:
    return Draft(Role.TOOL, "seen", tool_call_id=ToolCallId("a"), metadata=metadata)


class TestRecord:
    def test_the_key_is_the_same_for_every_attempt(self) -> None:
        assert RECORD.idempotency_key == replace(RECORD, attempts=3).idempotency_key
        assert idempotency_key(RunId("r"), 12, ToolCallId("a:b")) == RECORD.idempotency_key
        assert RECORD.idempotency_key == "r:12:a:b"

    def test_a_position_is_read_back(self) -> None:
        assert read_position(RECORD.position) == (12, 3)


class TestOutcome:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (result(), (ToolCallState.DONE, None)),
            (result(error="timeout"), (ToolCallState.FAILED, "timeout")),
            (result(error="unknown_outcome"), (ToolCallState.UNKNOWN, "unknown_outcome")),
            (result(error=None), (ToolCallState.DONE, None)),
        ],
    )
    def test_a_result_tells_what_came_of_its_call(
        self, given: Draft, expected: tuple[ToolCallState, str | None]
    ) -> None:
        assert expected == outcome_of(given)

    def test_a_word_that_is_no_word_is_cut(self) -> None:
        _, word = outcome_of(result(error="x" * 1000))

        assert word == "x" * 64


class TestCutOff:
    def test_what_was_begun_may_have_had_its_effect(self) -> None:
        assert cut_off(ToolCallState.STARTED) is ToolCallState.UNKNOWN
        assert cut_off(ToolCallState.PLANNED) is ToolCallState.FAILED
