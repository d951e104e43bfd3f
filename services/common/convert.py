"""Converts ids, texts, paths, times, JSON: `to_…` from fields of messages, `from_…` into them."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.text import Json, clean

_Plain: TypeAlias = "bool | int | float | str | list[_Plain] | dict[str, _Plain] | None"


def canonical_id(identifier: str) -> str:
    """An id in its canonical form; the contract also accepts upper case."""
    return str(uuid.UUID(identifier))


def required_id(identifier: str, *, field: str) -> str:
    """The canonical id from a field of a resource, which the contract allows to be empty.

    Raises:
        InvalidArgumentError: it is empty.
    """
    if not identifier:
        raise InvalidArgumentError.of_field(field, "must not be empty")
    return canonical_id(identifier)


def to_text(value: str, *, field: str, max_bytes: int) -> str:
    """A text with U+FFFD for what cannot be stored, which may make it longer.

    Raises:
        InvalidArgumentError: it is then longer than `max_bytes`.
    """
    cleaned = clean(value)
    if len(cleaned.encode()) > max_bytes:
        description = f"must be at most {max_bytes} bytes, with U+FFFD for what cannot be stored"
        raise InvalidArgumentError.of_field(field, description)
    return cleaned


def to_paths(mask: FieldMask, *, changeable: Collection[str]) -> frozenset[str]:
    """The paths of an `update_mask`; at least one.

    Raises:
        InvalidArgumentError: it names nothing, or something that is not `changeable`.
    """
    if not mask.paths:
        raise InvalidArgumentError.of_field("update_mask", "must name at least one field")
    wrong = sorted(set(mask.paths).difference(changeable))
    if wrong:
        named, listing = ", ".join(map(repr, wrong)), ", ".join(sorted(changeable))
        raise InvalidArgumentError(
            f"update_mask: {named} cannot be changed; {listing} can",
            violations=[
                FieldViolation("update_mask", f"{path!r} cannot be changed") for path in wrong
            ],
        )
    return frozenset(mask.paths)


def to_time(stamp: Timestamp) -> datetime:
    """The instant of a message, in UTC, to the microsecond."""
    return stamp.ToDatetime(UTC)


def from_time(time: datetime) -> Timestamp:
    """An instant as a message."""
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


def from_duration(length: timedelta) -> Duration:
    """A length of time as a message."""
    duration = Duration()
    duration.FromTimedelta(length)
    return duration


def to_json(struct: Struct) -> dict[str, Json]:
    """The JSON object of a message; NaN and the infinities, which JSON lacks, are kept."""
    return {key: _item(value) for key, value in struct.fields.items()}


def from_json(value: Mapping[str, Json]) -> Struct:
    """A JSON object as a message; numbers become doubles."""
    struct = Struct()
    struct.update({key: _plain(item) for key, item in value.items()})
    return struct


def _item(value: Value) -> Json:
    match value.WhichOneof("kind"):
        case "struct_value":
            return to_json(value.struct_value)
        case "list_value":
            return [_item(item) for item in value.list_value.values]
        case "string_value":
            return value.string_value
        case "number_value":
            return value.number_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def _plain(value: Json) -> _Plain:
    """The value in the types that `Struct.update` knows."""
    match value:
        case str():
            return value
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case Sequence():
            return [_plain(item) for item in value]
        case _:
            return value
