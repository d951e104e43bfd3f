import pytest
from chatmind.agent.v1 import run_service_pb2 as pb

from services.agent.api.convert.approvals import to_answer, to_scope
from services.agent.domain.approval_models import Answer, Decision
from services.common.errors import InvalidArgumentError
from services.common.ids import new_id


class TestScope:
    def test_a_session_or_a_run_is_named(self) -> None:
        identifier = new_id()

        assert to_scope(pb.ListApprovalsRequest(session_id=identifier)) == (identifier, None)
        assert to_scope(pb.ListApprovalsRequest(run_id=identifier)) == (None, identifier)

    @pytest.mark.parametrize("named", ["", "01a2302c-00a6-7ae0-a349-755a99c3b79a"])
    def test_neither_and_both_are_refused(self, named: str) -> None:
        request = pb.ListApprovalsRequest(session_id=named, run_id=named)

        with pytest.raises(InvalidArgumentError) as refused:
            to_scope(request)

        assert [each.field for each in refused.value.violations] == ["session_id", "run_id"]


class TestAnswer:
    def test_an_approval_names_its_arguments(self) -> None:
        request = pb.ResolveApprovalRequest(decision=pb.ResolveApprovalRequest.DECISION_APPROVE)

        with pytest.raises(InvalidArgumentError) as refused:
            to_answer(request)

        [violation] = refused.value.violations
        assert violation.field == "arguments_digest"

    def test_a_denial_need_not(self) -> None:
        request = pb.ResolveApprovalRequest(
            decision=pb.ResolveApprovalRequest.DECISION_DENY, comment="no\0"
        )

        assert to_answer(request) == Answer(Decision.DENY, "", "no\ufffd")
