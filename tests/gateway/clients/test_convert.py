"""Answers of the agent service, field by field."""

from typing import Any

import pytest
from chatmind.agent.v1 import run_pb2, run_service_pb2, session_pb2
from chatmind.gateway.v1 import message_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor

from services.gateway.api import convert as outward
from services.gateway.clients import convert
from services.gateway.domain.messages import Message, RunState, RunUpdate, WhenBusy
from services.gateway.domain.models import RunId, SessionId

MESSAGE = {
    "id": "m1",
    "sessionId": "s1",
    "runId": "r1",
    "sequence": "7",
    "role": "ROLE_TOOL",
    "text": "found",
    "toolCalls": [{"id": "c1", "name": "look", "argumentsJson": '{"q": 1}'}],
    "toolCallId": "c0",
    "toolName": "query_knowledge",
    "citations": [
        {
            "label": "1",
            "knowledgeBaseId": "b1",
            "documentId": "d1",
            "chunkId": "k1",
            "documentName": "guide.md",
            "headingPath": ["Guide", "Start"],
            "startLine": 3,
            "endLine": 9,
            "score": 0.75,
        }
    ],
    "metadata": {"usage": {"tokens": 3.0}, "ok": True, "none": None, "list": [1.0, "two"]},
    "createTime": "2026-01-02T12:00:00.123456Z",
    "discarded": True,
}


class TestMessage:
    def test_every_field_arrives_at_clients_as_it_was(self) -> None:
        inner = json_format.ParseDict(MESSAGE, session_pb2.Message())
        assert set(json_format.MessageToDict(inner)) == {
            field.json_name for field in session_pb2.Message.DESCRIPTOR.fields
        }
        event = run_service_pb2.WatchedEvent(message=inner)

        told = convert.to_told(event)

        assert isinstance(told, Message)
        assert told.sequence == 7
        outer = outward.from_event(told, 7).message
        assert json_format.MessageToDict(outer) == MESSAGE

    def test_the_two_contracts_say_the_same(self) -> None:
        """So that a message crosses the gateway as it is."""
        assert shape(session_pb2.Message.DESCRIPTOR) == shape(message_pb2.Message.DESCRIPTOR)

    def test_numbers_that_json_lacks_pass(self) -> None:
        inner = session_pb2.Message()
        inner.metadata.fields["score"].number_value = float("inf")

        told = convert.to_told(run_service_pb2.WatchedEvent(message=inner))

        assert isinstance(told, Message)
        assert outward.from_event(told, 1).message.metadata["score"] == float("inf")


def shape(message: Descriptor) -> dict[int, Any]:
    """The fields of a message of ours as they are on the wire, with those of the messages in it."""
    fields = {}
    for field in message.fields:
        inner: Any = None
        if field.message_type is not None:
            ours = field.message_type.full_name.startswith("chatmind.")
            inner = shape(field.message_type) if ours else field.message_type.full_name
        if field.enum_type is not None:
            inner = {value.number: value.name for value in field.enum_type.values}
        fields[field.number] = (field.name, field.type, field.is_repeated, inner)
    return fields


class TestRunUpdate:
    def test_every_field_arrives_at_clients_as_it_was(self) -> None:
        inner = run_pb2.Run(
            id="r1",
            session_id="s1",
            state=run_pb2.Run.STATE_ERROR,
            stop_reason=run_pb2.Run.STOP_REASON_MODEL_ERROR,
            step_count=3,
            error=run_pb2.RunError(reason="MODEL_UNAVAILABLE", message="The model is down."),
            discarded=True,
        )

        assert outward.from_run_update(convert.to_run_update(inner)) == message_pb2.RunUpdate(
            run_id="r1",
            session_id="s1",
            state=message_pb2.RunUpdate.STATE_ERROR,
            stop_reason="MODEL_ERROR",
            step_count=3,
            error_reason="MODEL_UNAVAILABLE",
            error_message="The model is down.",
            discarded=True,
        )

    def test_states_keep_their_meaning(self) -> None:
        for name, number in run_pb2.Run.State.items():
            update = convert.to_run_update(run_pb2.Run(state=number))

            state = outward.from_run_update(update).state
            assert message_pb2.RunUpdate.State.Name(state) == name
            expected = (
                None if name == "STATE_UNSPECIFIED" else RunState[name.removeprefix("STATE_")]
            )
            assert update.state is expected

    def test_every_stop_reason_is_told_by_its_name(self) -> None:
        for name, number in run_pb2.Run.StopReason.items():
            update = convert.to_run_update(run_pb2.Run(stop_reason=number))

            assert update.stop_reason == ("" if number == 0 else name.removeprefix("STOP_REASON_"))

    def test_what_a_newer_service_says_is_passed_over(self) -> None:
        newer = run_pb2.Run()
        newer.MergeFromString(b"\x28\xe7\x07\x30\xe7\x07")  # state and stop_reason 999

        update = convert.to_run_update(newer)

        assert (update.state, update.stop_reason) == (None, "")


class TestTold:
    def test_a_run_is_told_by_its_state(self) -> None:
        run = run_pb2.Run(id="r1", session_id="s1", state=run_pb2.Run.STATE_THINKING)
        event = run_service_pb2.WatchedEvent(run=run)

        assert convert.to_told(event) == RunUpdate(RunId("r1"), SessionId("s1"), RunState.THINKING)

    def test_a_sign_of_life_is_no_event(self) -> None:
        event = run_service_pb2.WatchedEvent()
        event.heartbeat.time.seconds = 1_767_355_200

        assert convert.to_told(event) is None

    def test_what_a_newer_service_sends_is_passed_over(self) -> None:
        assert convert.to_told(run_service_pb2.WatchedEvent(through_sequence=7)) is None


class TestWhenBusy:
    @pytest.mark.parametrize("value", list(WhenBusy))
    def test_words_keep_their_meaning(self, value: WhenBusy) -> None:
        number = convert.from_when_busy(value)

        assert run_pb2.WhenBusy.Name(number) == f"WHEN_BUSY_{value.name}"
