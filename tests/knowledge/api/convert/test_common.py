"""What the converters share."""

import math
import uuid

import pytest
from google.protobuf.struct_pb2 import Struct

from services.common.errors import InvalidArgumentError
from services.common.text import Json
from services.knowledge.api.convert.common import (
    canonical,
    from_json,
    required_id,
    to_json,
    to_request,
    to_text,
)

AN_ID = "01973f6c-0000-7000-8000-00000000abcd"


class TestIds:
    def test_have_one_spelling(self) -> None:
        assert AN_ID == canonical(AN_ID.upper()) == str(uuid.UUID(AN_ID))

    def test_are_required_where_the_contract_cannot_say_so(self) -> None:
        assert required_id(AN_ID, field="x.id") == AN_ID
        with pytest.raises(InvalidArgumentError) as caught:
            required_id("", field="x.id")
        assert caught.value.violations[0].field == "x.id"


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


class TestToText:
    @pytest.mark.parametrize(
        ("text", "expected"), [("", ""), ("好", "好"), ("a\0", "a\ufffd"), ("abcd", "abcd")]
    )
    def test_keeps_what_can_be_stored(self, text: str, expected: str) -> None:
        assert expected == to_text(text, field="x", max_bytes=4)

    @pytest.mark.parametrize("text", ["abcde", "好a\0", "好好"])
    def test_bounds_what_is_stored(self, text: str) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            to_text(text, field="x", max_bytes=4)

        assert caught.value.violations[0].field == "x"


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
