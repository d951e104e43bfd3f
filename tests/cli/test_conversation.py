"""Conversations with an agent."""

import time
import uuid
from collections.abc import Callable

import grpc
import pytest
from chatmind.agent.v1 import run_pb2
from chatmind.gateway.v1 import message_pb2

from cli.client import Gateway, connect
from cli.conversation import Event, Sent, answer, send
from cli.errors import CommandError
from cli.retries import Retries
from services.common.errors import NotFoundError, UnavailableError
from tests.cli.gateway import (
    KEY,
    RUN_ID,
    SESSION_ID,
    Hold,
    RunState,
    State,
    heartbeat,
    ran,
    said,
    serving,
)

Update = message_pb2.RunUpdate

SENT = Sent(SESSION_ID, RUN_ID, 1)
AWAY = UnavailableError("Draining.")


def answered(gateway: Gateway, *, attempts: int = 10) -> list[Event]:
    """All that follows what was sent."""
    return list(answer(gateway, SENT, retries=Retries(pause=0, attempts=attempts)))


def end(state: State, how: RunState.ValueType, *, last_sequence: int) -> Callable[[], None]:
    """A step of a stream at which the run ends, without a word on the stream."""

    def happen() -> None:
        state.run = run_pb2.Run(
            id=RUN_ID,
            session_id=SESSION_ID,
            state=how,
            stop_reason=run_pb2.Run.STOP_REASON_MODEL_ERROR,
            step_count=3,
            error=run_pb2.RunError(reason="MODEL_UNAVAILABLE", message="Down."),
        )
        state.last_sequence = last_sequence

    return happen


class TestSend:
    def test_each_message_has_a_request_id_of_its_own(self, gateway: Gateway, state: State) -> None:
        assert send(gateway, "hi", agent_id=SESSION_ID) == SENT
        send(gateway, "hi", session_id=SESSION_ID)
        ids = {uuid.UUID(sent.request_id) for sent in state.sent}

        assert len(ids) == 2
        assert [sent.WhichOneof("to") for sent in state.sent] == ["agent_id", "session_id"]

    def test_where_the_connection_broke_the_same_is_sent_again(
        self, gateway: Gateway, state: State
    ) -> None:
        state.send_errors.extend([AWAY, AWAY])

        assert send(gateway, "hi", agent_id=SESSION_ID, retries=Retries(pause=0)) == SENT
        assert len(state.sent) == 3
        assert len({sent.SerializeToString() for sent in state.sent}) == 1

    def test_what_is_refused_is_not_sent_again(self, gateway: Gateway, state: State) -> None:
        state.send_errors.append(NotFoundError("No such session."))
        with pytest.raises(grpc.RpcError):
            send(gateway, "hi", session_id=SESSION_ID)

        assert len(state.sent) == 1


class TestAnswer:
    def test_it_goes_on_to_the_end_of_the_run_and_no_further(
        self, gateway: Gateway, state: State
    ) -> None:
        script = [
            ran(Update.STATE_THINKING, 1),
            said("a", 2),
            ran(Update.STATE_FINISHED, 2, run_id="another"),
            ran(Update.STATE_FINISHED, 2),
        ]
        state.streams.append([*script, said("of another run", 3)])

        assert answered(gateway) == script
        assert state.resumed_after == [1]

    def test_a_broken_stream_is_resumed_after_what_was_seen(
        self, gateway: Gateway, state: State
    ) -> None:
        state.streams.extend(
            [[said("a", 2), AWAY], [AWAY], [said("b", 3)], [ran(Update.STATE_FINISHED, 3)]]
        )
        events = answered(gateway)

        assert [event.message.text for event in events] == ["a", "b", ""]
        assert state.resumed_after == [1, 2, 2, 3]

    def test_a_gateway_that_shuts_down_is_left_for_another_unnoticed(
        self, gateway: Gateway, state: State
    ) -> None:
        going = Event(through_sequence=2)
        going.go_away.resume_after_sequence = 2
        state.streams.extend([[said("a", 2), going], [said("b", 3), ran(Update.STATE_FINISHED, 3)]])
        events = answered(gateway)

        assert [event.WhichOneof("event") for event in events] == ["message", "message", "run"]
        assert state.resumed_after == [1, 2]

    def test_a_gateway_that_stays_away_is_given_up(self, gateway: Gateway, state: State) -> None:
        state.streams.extend([[AWAY]] * 9)
        with pytest.raises(grpc.RpcError):
            answered(gateway, attempts=3)

        assert len(state.resumed_after) == 4

    def test_streams_that_only_end_are_given_up_too(self, gateway: Gateway, state: State) -> None:
        with pytest.raises(CommandError):
            answered(gateway, attempts=3)

        assert len(state.resumed_after) == 4

    def test_what_does_not_pass_is_raised_at_once(self, gateway: Gateway, state: State) -> None:
        state.streams.append([said("a", 2), NotFoundError("No such session.")])
        with pytest.raises(grpc.RpcError):
            answered(gateway)

        assert len(state.resumed_after) == 1

    def test_a_gateway_that_is_gone_does_not_hold_it_for_ever(self, state: State) -> None:
        started = time.monotonic()
        with serving(state) as address, connect(address, KEY) as gateway:
            state.streams.append([said("a", 2), AWAY])
            events = answer(gateway, SENT, retries=Retries(attempts=3, pause=0.01))
            assert next(events).message.text == "a"
            gone = address
        with connect(gone, KEY) as gateway, pytest.raises(grpc.RpcError):
            list(answer(gateway, SENT, retries=Retries(attempts=3, pause=0.01)))

        assert time.monotonic() - started < 20


class TestRunThatEndedUnseen:
    """Streams tell of changes; a run that ended before one began changes no more."""

    def test_before_the_stream_began_its_messages_are_still_read(
        self, gateway: Gateway, state: State
    ) -> None:
        end(state, RunState.STATE_FINISHED, last_sequence=3)()
        state.streams.append([said("a", 2), said("b", 3), Hold()])
        events = answered(gateway)

        assert [event.message.text for event in events] == ["a", "b", ""]
        assert events[-1].run.state == Update.STATE_FINISHED

    def test_without_any_message_there_is_no_stream_to_wait_for(
        self, gateway: Gateway, state: State
    ) -> None:
        end(state, RunState.STATE_ERROR, last_sequence=1)()
        (event,) = answered(gateway)

        assert event == Event(
            run=Update(
                run_id=RUN_ID,
                session_id=SESSION_ID,
                state=Update.STATE_ERROR,
                stop_reason="MODEL_ERROR",
                step_count=3,
                error_reason="MODEL_UNAVAILABLE",
                error_message="Down.",
            ),
            through_sequence=1,
        )
        assert state.resumed_after == []

    def test_between_the_question_and_the_stream_a_heartbeat_brings_it_up(
        self, gateway: Gateway, state: State
    ) -> None:
        over = end(state, RunState.STATE_CANCELLED, last_sequence=2)
        state.streams.append([over, said("a", 2), heartbeat(2), Hold()])
        events = answered(gateway)

        assert [event.WhichOneof("event") for event in events] == ["message", "heartbeat", "run"]
        assert events[-1].run.state == Update.STATE_CANCELLED

    def test_while_the_stream_was_broken_it_is_seen_on_coming_back(
        self, gateway: Gateway, state: State
    ) -> None:
        over = end(state, RunState.STATE_FINISHED, last_sequence=3)
        state.streams.extend([[said("a", 2), over, AWAY], [said("b", 3), Hold()]])
        events = answered(gateway)

        assert [event.message.text for event in events] == ["a", "b", ""]
        assert state.resumed_after == [1, 2]

    def test_one_that_goes_on_is_waited_for(self, gateway: Gateway, state: State) -> None:
        state.streams.append([heartbeat(1), heartbeat(1), ran(Update.STATE_FINISHED, 1)])

        assert len(answered(gateway)) == 3
