from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from chatmind.agent.v1 import run_pb2, run_service_pb2

from services.agent.api.convert.runs import (
    from_run,
    from_tool_call,
    spelled_out,
    to_when_busy,
)
from services.agent.domain.ledger import ToolCallRecord, ToolCallState
from services.agent.domain.models import (
    AgentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    SessionId,
    ToolCallId,
)
from services.agent.domain.run_models import (
    Cost,
    Offered,
    Run,
    RunError,
    RunState,
    StopReason,
    Usage,
    WhenBusy,
)

MOMENT = datetime(2026, 6, 1, 10, 30, tzinfo=UTC)


def a_run(state: RunState, stop_reason: StopReason | None = None) -> Run:
    return Run(
        id=RunId("r"),
        session_id=SessionId("s"),
        tenant="acme",
        user_id="alice",
        agent_id=AgentId("a"),
        message_id=MessageId("m"),
        turn=1,
        state=state,
        create_time=MOMENT,
        stop_reason=stop_reason,
        step_count=3,
        usage=Usage(10, 5, 4, 3, Cost("EUR", 70)),
        offered=Offered(("look",), (KnowledgeBaseId("b"),), "large"),
        error=RunError("MODEL_REJECTED", "No."),
        cancel_reason=StopReason.INTERRUPTED,
        discarded=True,
        attempt=2,
        start_time=MOMENT + timedelta(seconds=1),
        end_time=MOMENT + timedelta(seconds=2),
    )


CALL = ToolCallRecord(
    run_id=RunId("r"),
    step=2,
    place=0,
    tool_call_id=ToolCallId("a"),
    tool_name="look",
    state=ToolCallState.FAILED,
    plan_time=MOMENT,
    attempts=3,
    error="timeout",
    start_time=MOMENT + timedelta(seconds=1),
    end_time=MOMENT + timedelta(seconds=2),
)


class TestRun:
    def test_everything_in_it_is_told(self) -> None:
        told = from_run(a_run(RunState.ERROR, StopReason.MODEL_ERROR))

        expected = run_pb2.Run(
            id="r",
            session_id="s",
            agent_id="a",
            message_id="m",
            state=run_pb2.Run.STATE_ERROR,
            stop_reason=run_pb2.Run.STOP_REASON_MODEL_ERROR,
            step_count=3,
            usage=run_pb2.Usage(
                input_tokens=10,
                output_tokens=5,
                cached_input_tokens=4,
                reasoning_tokens=3,
                cost=run_pb2.Cost(currency="EUR", nanos=70),
            ),
            offered=run_pb2.Offered(tools=["look"], knowledge_base_ids=["b"], model="large"),
            error=run_pb2.RunError(reason="MODEL_REJECTED", message="No."),
            cancel_requested=True,
            discarded=True,
            attempt=2,
        )
        for name, seconds in (("create_time", 0), ("start_time", 1), ("end_time", 2)):
            getattr(expected, name).FromDatetime(MOMENT + timedelta(seconds=seconds))
        assert expected == told

    def test_a_cost_that_is_not_known_is_not_told(self) -> None:
        run = replace(a_run(RunState.FINISHED, StopReason.END_TURN), usage=Usage(10, 5))

        assert not from_run(run).usage.HasField("cost")

    @pytest.mark.parametrize("state", RunState)
    def test_every_state_has_its_word_in_the_contract(self, state: RunState) -> None:
        assert f"STATE_{state.name}" == run_pb2.Run.State.Name(from_run(a_run(state)).state)

    @pytest.mark.parametrize("reason", StopReason)
    def test_every_stop_reason_has_its_word_in_the_contract(self, reason: StopReason) -> None:
        told = from_run(a_run(RunState.ERROR, reason))

        assert f"STOP_REASON_{reason.name}" == run_pb2.Run.StopReason.Name(told.stop_reason)


class TestWhenBusy:
    def test_waiting_is_the_default(self) -> None:
        assert WhenBusy.ENQUEUE is to_when_busy(run_service_pb2.StartRunRequest())

    @pytest.mark.parametrize("when_busy", WhenBusy)
    def test_every_way_is_offered(self, when_busy: WhenBusy) -> None:
        word = run_pb2.WhenBusy.Value(f"WHEN_BUSY_{when_busy.name}")

        assert when_busy is to_when_busy(run_service_pb2.StartRunRequest(when_busy=word))


class TestToolCall:
    @pytest.mark.parametrize("state", ToolCallState)
    def test_every_state_has_its_word_in_the_contract(self, state: ToolCallState) -> None:
        told = from_tool_call(replace(CALL, state=state))

        assert f"STATE_{state.name}" == run_pb2.ToolCallRecord.State.Name(told.state)

    def test_everything_in_it_is_told(self) -> None:
        expected = run_pb2.ToolCallRecord(
            run_id="r",
            step=2,
            tool_call_id="a",
            tool_name="look",
            state=run_pb2.ToolCallRecord.STATE_FAILED,
            idempotency_key="r:2:a",
            attempts=3,
            error="timeout",
        )
        for name, seconds in (("plan_time", 0), ("start_time", 1), ("end_time", 2)):
            getattr(expected, name).FromDatetime(MOMENT + timedelta(seconds=seconds))

        assert expected == from_tool_call(CALL)

    def test_what_has_not_happened_has_no_time(self) -> None:
        told = from_tool_call(replace(CALL, start_time=None, end_time=None, error=None))

        assert (told.HasField("start_time"), told.HasField("end_time")) == (False, False)
        assert told.error == ""


def test_a_default_is_spelled_out() -> None:
    left_out = run_service_pb2.StartRunRequest(text="x")
    said = run_service_pb2.StartRunRequest(text="x", when_busy=run_pb2.WHEN_BUSY_ENQUEUE)

    assert spelled_out(left_out) == said == spelled_out(said)
    assert left_out.when_busy == run_pb2.WHEN_BUSY_UNSPECIFIED
