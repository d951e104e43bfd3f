"""Plain values in the fields of messages."""

import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from services.common.convert import (
    canonical_id,
    from_duration,
    from_json,
    from_time,
    required_id,
    to_json,
    to_paths,
    to_text,
    to_time,
)
from services.common.errors import InvalidArgumentError
from services.common.text import Json

AN_ID = "01973f6c-0000-7000-8000-00000000abcd"


class TestIds:
    def test_have_one_spelling(self) -> None:
        assert AN_ID == canonical_id(AN_ID.upper()) == str(uuid.UUID(AN_ID))

    def test_an_empty_one_is_refused_by_its_field(self) -> None:
        assert required_id(AN_ID.upper(), field="agent.id") == AN_ID
        with pytest.raises(InvalidArgumentError) as refused:
            required_id("", field="agent.id")
        assert [each.field for each in refused.value.violations] == ["agent.id"]


class TestToPaths:
    def test_each_path_is_given_once(self) -> None:
        mask = FieldMask(paths=["title", "text", "title"])

        assert {"title", "text"} == to_paths(mask, changeable=("text", "title", "tags"))

    def test_an_empty_mask_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="must name at least one field"):
            to_paths(FieldMask(), changeable=("title",))

    def test_all_that_cannot_be_changed_is_named(self) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            to_paths(FieldMask(paths=["id", "title", "age"]), changeable=("title", "tags"))

        assert refused.value.message == (
            "update_mask: 'age', 'id' cannot be changed; tags, title can"
        )
        assert [(each.field, each.description) for each in refused.value.violations] == [
            ("update_mask", "'age' cannot be changed"),
            ("update_mask", "'id' cannot be changed"),
        ]


class TestToText:
    @pytest.mark.parametrize(
        ("text", "expected"), [("", ""), ("好", "好"), ("a\0", "a\ufffd"), ("abcd", "abcd")]
    )
    def test_keeps_what_can_be_stored(self, text: str, expected: str) -> None:
        assert expected == to_text(text, field="x", max_bytes=4)

    @pytest.mark.parametrize("text", ["abcde", "好a\0", "好好"])
    def test_bounds_what_is_stored(self, text: str) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            to_text(text, field="x", max_bytes=4)

        assert [each.field for each in refused.value.violations] == ["x"]


class TestValues:
    def test_times_keep_their_microseconds(self) -> None:
        moment = datetime(2026, 6, 1, 10, 30, 0, 123_456, tzinfo=UTC)

        assert moment == to_time(from_time(moment))
        assert to_time(from_time(moment)).tzinfo is UTC
        assert timedelta(seconds=90.5) == from_duration(timedelta(seconds=90.5)).ToTimedelta()

    def test_json_of_any_shape_becomes_a_struct(self) -> None:
        struct = from_json({"a": [1, 0.5, None, True, {"b": "c"}], "d": {}, "e": ()})

        many, empty = struct.get_or_create_list("a"), struct.get_or_create_list("e")
        assert list(many)[:4] == [1, 0.5, None, True]
        assert many[4] == {"b": "c"}
        assert list(empty) == []

    @pytest.mark.parametrize(
        "value",
        [
            {},
            {"a": "text", "b": 1.5, "c": True, "d": None, "e": math.inf},
            {"list": [1.0, ["x"], {"y": []}], "object": {"": {"deep": "中文"}}},
        ],
    )
    def test_json_comes_back_as_it_was(self, value: dict[str, Json]) -> None:
        assert to_json(from_json(value)) == value
