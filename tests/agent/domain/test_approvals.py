from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from services.agent.domain.approval_models import (
    Answer,
    Approval,
    ApprovalId,
    ApprovalState,
    Decision,
    Question,
    read_position,
)
from services.agent.domain.approvals import check_answer
from services.agent.domain.errors import (
    ApprovalExpiredError,
    ApprovalMismatchError,
    ApprovalResolvedError,
)
from services.agent.domain.models import RunId, SessionId, ToolCallId

NOW = datetime(2026, 6, 1, tzinfo=UTC)
QUESTION = Question(ToolCallId("a"), "send", '{"to":"bob"}')
APPROVAL = Approval(
    id=ApprovalId("p"),
    session_id=SessionId("s"),
    run_id=RunId("r"),
    turn=1,
    step=2,
    place=3,
    question=QUESTION,
    state=ApprovalState.PENDING,
    create_time=NOW,
    expire_time=NOW + timedelta(minutes=10),
)
YES = Answer(Decision.APPROVE, QUESTION.digest)


class TestDigest:
    def test_can_be_made_by_anybody(self) -> None:
        r"""As in `printf '%s\n%s' send '{"to":"bob"}' | sha256sum`."""
        expected = "bdc048fd39d38259082da709b5029c81ea7df1e494ea04ff248f66fe11d40256"

        assert expected == QUESTION.digest

    @pytest.mark.parametrize(
        "other",
        [
            replace(QUESTION, tool_name="sent"),
            replace(QUESTION, arguments_json='{"to":"bob" }'),
        ],
    )
    def test_tells_tools_and_arguments_apart(self, other: Question) -> None:
        assert QUESTION.digest != other.digest


class TestPosition:
    def test_is_read_again(self) -> None:
        assert read_position(APPROVAL.position) == (1, 2, 3)


class TestCheckAnswer:
    @pytest.mark.parametrize("answer", [YES, replace(YES, decision=Decision.DENY)])
    def test_a_pending_one_is_answered(self, answer: Answer) -> None:
        check_answer(APPROVAL, answer)

    def test_a_denial_needs_no_digest(self) -> None:
        check_answer(APPROVAL, Answer(Decision.DENY))

    @pytest.mark.parametrize(
        "state", [ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.CANCELLED]
    )
    def test_others_are_not(self, state: ApprovalState) -> None:
        with pytest.raises(ApprovalResolvedError, match=state.name):
            check_answer(replace(APPROVAL, state=state), YES)

    def test_nor_is_one_that_lapsed(self) -> None:
        with pytest.raises(ApprovalExpiredError, match="2026-06-01T00:10:00Z"):
            check_answer(replace(APPROVAL, state=ApprovalState.EXPIRED), YES)

    @pytest.mark.parametrize("decision", Decision)
    def test_nor_is_another_question(self, decision: Decision) -> None:
        with pytest.raises(ApprovalMismatchError):
            check_answer(APPROVAL, Answer(decision, "0" * 64))
