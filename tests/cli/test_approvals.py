"""Tool calls that wait for a person."""

import uuid

import pytest
from chatmind.agent.v1 import approval_pb2, run_service_pb2

from cli.approvals import decide, legible
from cli.client import Gateway
from cli.output import Output
from services.agent.domain.errors import ApprovalExpiredError
from services.common.clock import now
from services.common.errors import UnavailableError
from tests.cli.gateway import RUN_ID, State

Approval = approval_pb2.Approval
Request = run_service_pb2.ResolveApprovalRequest


def waiting(number: int) -> approval_pb2.Approval:
    return Approval(
        id=str(uuid.UUID(int=number)),
        run_id=RUN_ID,
        tool_name="send",
        arguments_json=f'{{"to":"bob {number}"}}',
        arguments_digest=str(number) * 64,
        state=Approval.STATE_PENDING,
    )


class TestLegible:
    def test_arguments_are_laid_out(self) -> None:
        assert legible('{"to":"鲍勃","n":[1]}') == ('{\n  "to": "鲍勃",\n  "n": [\n    1\n  ]\n}')

    @pytest.mark.parametrize(
        ("hidden", "shown"),
        [
            ("\u200b", "\\u200b"),
            ("\u202e", "\\u202e"),
            ("\x9b", "\\u009b"),
            ("\U000e0041", "\\udb40\\udc41"),
            ("\\n", "\\n"),
        ],
    )
    def test_nothing_in_them_stays_hidden(self, hidden: str, shown: str) -> None:
        assert f'"a{shown}b"' in legible(f'{{"x":"a{hidden}b"}}')


class TestDecide:
    @pytest.fixture(autouse=True)
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody sits there."""
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def decide(self, gateway: Gateway, *answers: str) -> None:
        replies = iter(answers)
        output = Output(as_json=False)
        output.ask = lambda prompt: next(replies)  # type: ignore[method-assign]
        decide(gateway, output, RUN_ID)

    def test_each_is_answered_as_it_was_shown(
        self, gateway: Gateway, state: State, capsys: pytest.CaptureFixture[str]
    ) -> None:
        state.approvals = [waiting(1), waiting(2), waiting(3)]

        self.decide(gateway, "y", "", "no")

        assert [(each.decision, each.arguments_digest[0]) for each in state.resolved] == [
            (Request.DECISION_APPROVE, "1"),
            (Request.DECISION_DENY, "2"),
            (Request.DECISION_DENY, "3"),
        ]
        assert '"to": "bob 1"' in capsys.readouterr().err

    def test_one_that_lapsed_meanwhile_is_told(
        self, gateway: Gateway, state: State, capsys: pytest.CaptureFixture[str]
    ) -> None:
        state.approvals = [waiting(1), waiting(2)]
        state.resolve_errors.append(ApprovalExpiredError.of("a", now()))

        self.decide(gateway, "y", "y")

        assert "lapsed" in capsys.readouterr().err
        assert len(state.resolved) == 2

    def test_another_failure_is_none_of_its_business(self, gateway: Gateway, state: State) -> None:
        state.approvals = [waiting(1)]
        state.resolve_errors.append(UnavailableError("down"))

        with pytest.raises(Exception, match="down"):
            self.decide(gateway, "y")
