"""Conversions between messages and values."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct, Value

from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.text import Json
from services.common.wire import (
    canonical_id,
    from_struct,
    from_timestamp,
    required_id,
    storable_text,
    to_struct,
    to_timestamp,
)

ID = "0190a5b8-0000-7000-8000-00000000000a"


def refused(call: Any, *arguments: Any, **options: Any) -> tuple[FieldViolation, ...]:
    """The fields that a conversion refuses."""
    with pytest.raises(InvalidArgumentError) as caught:
        call(*arguments, **options)
    return caught.value.violations


class TestIds:
    def test_an_id_has_one_form(self) -> None:
        assert canonical_id(ID.upper()) == ID
        assert required_id(ID.upper(), field="agent.id") == ID

    def test_a_required_one_must_be_there(self) -> None:
        violation = FieldViolation("agent.id", "must not be empty")

        assert refused(required_id, "", field="agent.id") == (violation,)


class TestStorableText:
    def test_what_cannot_be_stored_is_replaced(self) -> None:
        assert storable_text("a\0b", field="name", max_bytes=5) == "a\ufffdb"

    def test_the_limit_holds_for_what_is_stored(self) -> None:
        (violation,) = refused(storable_text, "a\0b", field="name", max_bytes=4)

        assert violation.field == "name"
        assert violation.description.startswith("must be at most 4 bytes")


class TestTimestamp:
    def test_an_instant_comes_back_in_utc(self) -> None:
        instant = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=8)))

        back = from_timestamp(to_timestamp(instant))

        assert back == instant
        assert back.tzinfo is UTC


class TestStruct:
    @pytest.mark.parametrize(
        "value",
        [
            {},
            {"a": "text", "b": 1.5, "c": True, "d": None},
            {"list": [1.0, ["x"], {"y": []}], "object": {"": {"deep": "中文"}}},
        ],
    )
    def test_an_object_comes_back_as_it_was(self, value: Mapping[str, Json]) -> None:
        assert from_struct(to_struct(value)) == value

    def test_tuples_are_lists_and_integers_are_doubles(self) -> None:
        assert from_struct(to_struct({"a": (1, "x")})) == {"a": [1.0, "x"]}

    @pytest.mark.parametrize("number", [math.inf, -math.inf])
    def test_numbers_that_json_lacks_are_kept(self, number: float) -> None:
        struct = Struct(fields={"a": Value(number_value=number)})

        assert from_struct(struct) == {"a": number}
