"""`chatmind run`."""

import json
import uuid

import pytest
from chatmind.agent.v1 import approval_pb2, run_pb2, run_service_pb2
from chatmind.agent.v1.replay_pb2 import Difference, Replay

from tests.cli.conftest import Chatmind
from tests.cli.gateway import RUN_ID, SESSION_ID, RunState, State

Approval = approval_pb2.Approval
Resolve = run_service_pb2.ResolveApprovalRequest
Call = run_pb2.ToolCallRecord
Run = run_pb2.Run


@pytest.fixture(autouse=True)
def failed(state: State) -> None:
    """A run that ended in an error."""
    state.run = Run(
        id=RUN_ID,
        session_id=SESSION_ID,
        state=RunState.STATE_ERROR,
        stop_reason=Run.STOP_REASON_MODEL_ERROR,
        error=run_pb2.RunError(reason="MODEL_UNAVAILABLE", message="关机了"),
        usage=run_pb2.Usage(cost=run_pb2.Cost(currency="EUR", nanos=70)),
    )


class TestList:
    def test_every_page_is_shown_with_how_each_run_stands(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.runs = [
            Run(id="r4", state=RunState.STATE_IDLE),
            Run(id="r3", state=RunState.STATE_THINKING, cancel_requested=True),
            Run(id="r2", state=RunState.STATE_CANCELLED, discarded=True),
            Run(id="r1", state=RunState.STATE_FINISHED, stop_reason=Run.STOP_REASON_END_TURN),
        ]
        lines = chatmind("run", "list", "--session", SESSION_ID).stdout.splitlines()

        assert [line.split()[-1] for line in lines[1:]] == ["r4", "r3", "r2", "r1"]
        assert lines[1].startswith("idle ")
        assert lines[2].startswith("thinking, to be cancelled ")
        assert lines[3].startswith("cancelled, discarded ")
        assert lines[4].split()[:2] == ["finished", "end_turn"]

    def test_for_scripts_each_is_an_object(self, chatmind: Chatmind, state: State) -> None:
        state.runs = [Run(id="r2"), Run(id="r1")]
        lines = chatmind("run", "list", "--session", SESSION_ID, "--json").stdout.splitlines()

        assert [json.loads(line)["id"] for line in lines] == ["r2", "r1"]

    @pytest.mark.parametrize(
        ("nanos", "told"),
        [(0, "0.0000 EUR"), (1, "0.0001 EUR"), (1_250_000_000, "1.2500 EUR")],
    )
    def test_what_they_cost_is_told(
        self, chatmind: Chatmind, state: State, nanos: int, told: str
    ) -> None:
        cost = run_pb2.Cost(currency="EUR", nanos=nanos)
        state.runs = [Run(id="r1", usage=run_pb2.Usage(cost=cost))]

        assert f" {told} " in chatmind("run", "list", "--session", SESSION_ID).stdout

    def test_of_what_is_no_session_there_are_none(self, chatmind: Chatmind) -> None:
        result = chatmind("run", "list", "--session", "xyz")

        assert result.exit_code == 1
        assert result.stderr.startswith("error: 'xyz' is not the id of a session; ")


class TestGet:
    def test_it_is_shown_in_full_and_readable(self, chatmind: Chatmind) -> None:
        shown = chatmind("run", "get", RUN_ID).stdout

        assert '"message": "关机了"' in shown
        assert '"currency": "EUR"' in shown
        assert json.loads(shown) == json.loads(chatmind("run", "get", RUN_ID, "--json").stdout)


class TestCancel:
    def test_it_is_asked_to_stop(self, chatmind: Chatmind, state: State) -> None:
        state.run.state = RunState.STATE_THINKING

        assert chatmind("run", "cancel", RUN_ID).stdout == (
            f"{RUN_ID} is thinking, to be cancelled\n"
        )
        assert json.loads(chatmind("run", "cancel", RUN_ID, "--json").stdout)["cancel_requested"]


class TestRetry:
    def test_it_goes_on_and_its_answer_can_be_seen(self, chatmind: Chatmind) -> None:
        result = chatmind("run", "retry", RUN_ID)

        assert result.stdout == f"{RUN_ID} is idle\n"
        assert result.stderr == f"see its answer with: chatmind chat --session {SESSION_ID}\n"


class TestReplay:
    def test_one_that_is_identical_is_good(self, chatmind: Chatmind, state: State) -> None:
        same = Replay(run_id=RUN_ID, identical=True, compared_messages=3, end_driven=True)
        state.replays["recorded"] = same

        result = chatmind("run", "replay", RUN_ID)

        assert (0, f"{RUN_ID} is identical: 3 messages came out alike, so did the end\n") == (
            result.exit_code,
            result.stdout,
        )

    def test_an_end_from_outside_is_told(self, chatmind: Chatmind, state: State) -> None:
        state.replays["recorded"] = Replay(run_id=RUN_ID, identical=True)

        assert chatmind("run", "replay", RUN_ID).stdout.endswith(", the end came from outside\n")

    def test_the_first_difference_is_shown_and_fails(
        self, chatmind: Chatmind, state: State
    ) -> None:
        found = Difference(path="messages[2].text", recorded="found", replayed="")
        state.replays["current"] = Replay(run_id=RUN_ID, difference=found, compared_messages=1)

        result = chatmind("run", "replay", RUN_ID, "--current-agent")

        assert result.exit_code == 1
        assert result.stdout.splitlines() == [
            f"{RUN_ID} differs in messages[2].text; 1 message came out alike before",
            "- found",
            "+ (nothing)",
        ]
        scripted = chatmind("run", "replay", RUN_ID, "--current-agent", "--json")
        assert (
            scripted.exit_code,
            json.loads(scripted.stdout)["difference"]["path"],
        ) == (1, "messages[2].text")


class TestCalls:
    def test_what_became_of_each_is_shown(self, chatmind: Chatmind, state: State) -> None:
        state.calls = [
            Call(step=1, tool_name="a", state=Call.STATE_DONE, attempts=1, tool_call_id="c1"),
            Call(step=1, tool_name="b", state=Call.STATE_FAILED, attempts=2, tool_call_id="c2"),
            Call(step=2, tool_name="c", state=Call.STATE_UNKNOWN, attempts=1, tool_call_id="c3"),
        ]
        lines = chatmind("run", "calls", RUN_ID).stdout.splitlines()

        assert [line.split() for line in lines[1:]] == [
            ["1", "a", "done", "1", "c1"],
            ["1", "b", "failed", "2", "c2"],
            ["2", "c", "unknown", "1", "c3"],
        ]
        scripted = chatmind("run", "calls", RUN_ID, "--json").stdout.splitlines()
        assert [json.loads(line)["tool_call_id"] for line in scripted] == ["c1", "c2", "c3"]


class TestApprovals:
    @pytest.fixture(autouse=True)
    def waiting(self, state: State) -> None:
        """Two calls wait, one was denied."""
        state.approvals = [
            Approval(
                id=str(uuid.UUID(int=number)),
                tool_name="send",
                arguments_json='{"to":"bob"}',
                arguments_digest="0" * 64,
                state=stands,
            )
            for number, stands in enumerate(
                (Approval.STATE_PENDING, Approval.STATE_DENIED, Approval.STATE_PENDING), start=1
            )
        ]

    def test_all_are_listed(self, chatmind: Chatmind) -> None:
        lines = chatmind("run", "approvals", RUN_ID).stdout.splitlines()

        assert [line.split()[1] for line in lines[1:]] == ["pending", "denied", "pending"]
        assert '{"to":"bob"}' in lines[1]

    def test_it_is_told_who_answered_and_when(self, chatmind: Chatmind, state: State) -> None:
        denied = state.approvals[1]
        denied.resolver_user_id = "ann"
        denied.resolve_time.FromJsonString("2026-06-01T10:30:00Z")

        lines = chatmind("run", "approvals", RUN_ID).stdout.splitlines()

        assert lines[2].split()[1:4] == ["denied", "ann", "2026-06-01T10:30:00Z"]

    def test_those_that_wait_are_approved(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("run", "approve", RUN_ID, "--yes")

        assert result.exit_code == 0
        assert [each.decision for each in state.resolved] == [Resolve.DECISION_APPROVE] * 2
        assert '"to": "bob"' in result.stderr

    def test_one_can_be_chosen(self, chatmind: Chatmind, state: State) -> None:
        chosen = state.approvals[2].id
        result = chatmind("run", "deny", RUN_ID, chosen, "--comment", "not him")

        assert result.stdout == f"{chosen} is denied\n"
        [request] = state.resolved
        assert (request.approval_id, request.decision, request.comment) == (
            chosen,
            Resolve.DECISION_DENY,
            "not him",
        )

    def test_whoever_does_not_say_yes_has_answered_nothing(
        self, chatmind: Chatmind, state: State
    ) -> None:
        result = chatmind("run", "approve", RUN_ID, stdin="n\n")

        assert (result.exit_code, state.resolved) == (1, [])

    def test_what_does_not_wait_is_not_answered(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("run", "approve", RUN_ID, state.approvals[1].id, "--yes")

        assert (result.exit_code, state.resolved) == (1, [])
        assert "no such call" in result.stderr
