"""Request ids and JSON from the wire."""

import math

import pytest
from google.protobuf.struct_pb2 import Struct

from services.common.convert import from_json
from services.common.errors import InvalidArgumentError
from services.common.text import Json
from services.knowledge.api.convert.common import to_json, to_request

AN_ID = "01973f6c-0000-7000-8000-00000000abcd"


class TestRequests:
    def test_an_absent_id_is_none(self) -> None:
        assert to_request("Create", "", Struct()) is None

    def test_equal_content_has_an_equal_digest(self) -> None:
        one, other = Struct(), Struct()
        one.update({"a": 1, "b": [2]})
        other.update({"b": [2], "a": 1})

        assert to_request("Create", AN_ID, one) == to_request("Create", AN_ID.upper(), other)
        other.update({"a": 2})
        assert to_request("Create", AN_ID, one) != to_request("Create", AN_ID, other)


class TestJson:
    @pytest.mark.parametrize(
        "value",
        [
            {},
            {"": "", "a": None, "b": True, "c": 1.5, "d": [], "e": {}},
            {"a": [[1.0, ["x", {"y": [None]}]]]},
            {"big": 1.7976931348623157e308, "tiny": 5e-324, "zero": -0.0},
        ],
    )
    def test_comes_back_as_it_went(self, value: dict[str, Json]) -> None:
        assert value == to_json(from_json(value), field="x")

    def test_every_string_can_be_stored(self) -> None:
        struct = Struct()
        struct.update({"a\0": ["\0", {"\0b": "c\0"}]})

        assert to_json(struct, field="x") == {"a\ufffd": ["\ufffd", {"\ufffdb": "c\ufffd"}]}

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_numbers_are_finite(self, number: float) -> None:
        struct = Struct()
        struct.fields["a"].list_value.values.add().number_value = number

        with pytest.raises(InvalidArgumentError):
            to_json(struct, field="x")

    def test_depth_is_bounded(self) -> None:
        struct = inner = Struct()
        for _ in range(30):
            inner = inner.fields["a"].struct_value
            inner.SetInParent()

        with pytest.raises(InvalidArgumentError):
            to_json(struct, field="x")
