"""Conversions that the servicers and clients of all services need between messages and values."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from services.common.errors import InvalidArgumentError
from services.common.text import Json, clean

_Plain: TypeAlias = "bool | int | float | str | list[_Plain] | dict[str, _Plain] | None"


def canonical_id(identifier: str) -> str:
    """An id in its canonical form; the contract also accepts upper case."""
    return str(uuid.UUID(identifier))


def required_id(identifier: str, *, field: str) -> str:
    """The canonical form of an id that the contract cannot require, since it is inside a resource.

    Raises:
        InvalidArgumentError: the id is empty.
    """
    if not identifier:
        raise InvalidArgumentError.of_field(field, "must not be empty")
    return canonical_id(identifier)


def storable_text(text: str, *, field: str, max_bytes: int) -> str:
    """A text as it can be stored, with U+FFFD for what cannot be; this may make it longer.

    Raises:
        InvalidArgumentError: it then has more than `max_bytes`.
    """
    cleaned = clean(text)
    if len(cleaned.encode()) > max_bytes:
        description = f"must be at most {max_bytes} bytes, with U+FFFD for what cannot be stored"
        raise InvalidArgumentError.of_field(field, description)
    return cleaned


def to_timestamp(instant: datetime) -> Timestamp:
    """A timezone-aware instant as a message."""
    timestamp = Timestamp()
    timestamp.FromDatetime(instant)
    return timestamp


def from_timestamp(timestamp: Timestamp) -> datetime:
    """The instant of a message, in UTC, to the microsecond."""
    return timestamp.ToDatetime(UTC)


def to_struct(value: Mapping[str, Json]) -> Struct:
    """A JSON object as a message; numbers become doubles."""
    struct = Struct()
    struct.update({key: _plain(item) for key, item in value.items()})
    return struct


def from_struct(struct: Struct) -> dict[str, Json]:
    """The JSON object of a message; NaN and the infinities, which JSON lacks, are kept."""
    return {key: _from_value(value) for key, value in struct.fields.items()}


def _plain(value: Json) -> _Plain:
    match value:
        case str():
            return value
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case Sequence():
            return [_plain(item) for item in value]
        case _:
            return value


def _from_value(value: Value) -> Json:
    match value.WhichOneof("kind"):
        case "struct_value":
            return from_struct(value.struct_value)
        case "list_value":
            return [_from_value(item) for item in value.list_value.values]
        case "string_value":
            return value.string_value
        case "number_value":
            return value.number_value
        case "bool_value":
            return value.bool_value
        case _:
            return None
