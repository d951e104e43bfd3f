from datetime import UTC, datetime, timedelta

import pytest
from chatmind.agent.v1 import agent_pb2, agent_service_pb2

from services.agent.api.convert.common import (
    canonical,
    duration,
    free_text,
    request_key,
    required_id,
    struct,
    timestamp,
)
from services.common.errors import InvalidArgumentError

ID = "01973f6c-0000-7abc-8000-0000000000ff"


def request(name: str, request_id: str = ID) -> agent_service_pb2.CreateAgentRequest:
    return agent_service_pb2.CreateAgentRequest(
        agent=agent_pb2.Agent(display_name=name), request_id=request_id
    )


class TestIds:
    def test_capitals_are_one_spelling_of_the_same_id(self) -> None:
        assert canonical(ID.upper()) == ID

    def test_an_empty_one_is_refused_by_its_field(self) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            required_id("", field="agent.id")

        assert [each.field for each in refused.value.violations] == ["agent.id"]


class TestRequestKey:
    def test_without_an_id_there_is_none(self) -> None:
        assert request_key("", request("x", "")) is None

    def test_the_content_decides_not_the_id_or_its_spelling(self) -> None:
        first = request_key(ID, request("x"))
        again = request_key(ID.upper(), request("x", ID.upper()))
        other = request_key(ID, request("y"))

        assert first is not None
        assert other is not None
        assert first == again
        assert (first.id, len(first.digest)) == (ID, 32)
        assert first.digest != other.digest


class TestFreeText:
    def test_what_cannot_be_stored_is_replaced(self) -> None:
        assert free_text("a\0b", field="text", most=5) == "a\ufffdb"

    def test_a_text_that_grows_past_its_limit_by_that_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            free_text("a\0b", field="text", most=4)

        assert [each.field for each in refused.value.violations] == ["text"]


class TestValues:
    def test_times_keep_their_microseconds(self) -> None:
        moment = datetime(2026, 6, 1, 10, 30, 0, 123_456, tzinfo=UTC)

        assert moment == timestamp(moment).ToDatetime(tzinfo=UTC)
        assert timedelta(seconds=90.5) == duration(timedelta(seconds=90.5)).ToTimedelta()

    def test_json_of_any_shape_becomes_a_struct(self) -> None:
        value = {"a": [1, 0.5, None, True, {"b": "c"}], "d": {}, "e": ()}

        told = struct(value)

        assert list(told["a"])[:4] == [1, 0.5, None, True]
        assert told["a"][4]["b"] == "c"
        assert list(told["e"]) == []
