"""Rules written in the contract reach protovalidate, though no wheel carries `validate.proto`."""

import protovalidate
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.repo.contract import describe, write_scratch

SPAN_ID = "0190a5b8-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def request_type(tmp_path_factory: pytest.TempPathFactory) -> type[Message]:
    pool = DescriptorPool()
    for each in describe(write_scratch(tmp_path_factory.mktemp("protos"))):
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName("chatmind.scratch.v1.MeasureRequest"))


def broken_rules(message: Message) -> list[tuple[str, str]]:
    """The fields that were refused, each with the rule it breaks."""
    found = []
    for violation in protovalidate.collect_violations(message):
        path = violation.proto.field
        names = [element.field_name for element in path.elements] if path else []
        found.append((".".join(names), violation.proto.rule_id))
    return found


class TestRules:
    def test_a_good_message_passes(self, request_type: type[Message]) -> None:
        good = request_type(span_id=SPAN_ID, span={"start": 1, "end": 2})

        protovalidate.validate(good)

    def test_every_broken_field_rule_is_told_at_once(self, request_type: type[Message]) -> None:
        expected = [("span_id", "string.uuid"), ("span", "required")]

        assert expected == broken_rules(request_type(span_id="nonsense"))

    def test_a_rule_over_a_whole_message_is_told(self, request_type: type[Message]) -> None:
        backwards = request_type(span_id=SPAN_ID, span={"start": 2, "end": 1})

        assert broken_rules(backwards) == [("span", "span.order")]
