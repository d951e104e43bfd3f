import pytest
from chatmind.agent.v1 import agent_pb2, agent_service_pb2

from services.agent.api.convert.common import to_request_key, to_time_zone
from services.common.errors import InvalidArgumentError

ID = "01973f6c-0000-7abc-8000-0000000000ff"


def request(name: str, request_id: str = ID) -> agent_service_pb2.CreateAgentRequest:
    return agent_service_pb2.CreateAgentRequest(
        agent=agent_pb2.Agent(display_name=name), request_id=request_id
    )


class TestRequestKey:
    def test_without_an_id_there_is_none(self) -> None:
        assert to_request_key("", request("x", "")) is None

    def test_the_content_decides_not_the_id_or_its_spelling(self) -> None:
        first = to_request_key(ID, request("x"))
        again = to_request_key(ID.upper(), request("x", ID.upper()))
        other = to_request_key(ID, request("y"))

        assert first is not None
        assert other is not None
        assert first == again
        assert (first.id, len(first.digest)) == (ID, 32)
        assert first.digest != other.digest


class TestTimeZone:
    @pytest.mark.parametrize("name", ["", "UTC", "Asia/Shanghai"])
    def test_a_name_of_the_iana_is_kept(self, name: str) -> None:
        assert to_time_zone(name, field="agent.time_zone") == name

    def test_any_other_is_refused_with_what_may_be_meant(self) -> None:
        with pytest.raises(InvalidArgumentError) as raised:
            to_time_zone("Shanghai", field="agent.time_zone")

        assert [each.field for each in raised.value.violations] == ["agent.time_zone"]
        assert raised.value.message.endswith("; perhaps Asia/Shanghai")
