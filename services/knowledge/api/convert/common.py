"""What the converters share."""

import hashlib
import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from services.common.errors import InvalidArgumentError
from services.common.text import Json, clean
from services.knowledge.domain.models import AcceptedRequest, RequestId

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

# Protocol Buffers reads 100 levels of messages; an object takes three, and answers hold it deeper
# than requests do.
_MAX_DEPTH = 30


def canonical(identifier: str) -> str:
    """An id in its one spelling; the contract takes upper case too."""
    return str(uuid.UUID(identifier))


def required_id(identifier: str, *, field: str) -> str:
    """An id within a resource, which the contract lets be empty, in its one spelling.

    Raises:
        InvalidArgumentError: it is empty.
    """
    if not identifier:
        raise InvalidArgumentError.of_field(field, "must not be empty")
    return canonical(identifier)


def to_request_id(identifier: str) -> RequestId | None:
    """A request id; None where the caller gave none."""
    return RequestId(canonical(identifier)) if identifier else None


def to_request(method: str, request_id: str, content: Message) -> AcceptedRequest | None:
    """A request that is safe to repeat; None where the caller gave no id.

    Args:
        method: the kind of request.
        request_id: the caller's id; empty for none.
        content: what must be the same when the id comes again.
    """
    identifier = to_request_id(request_id)
    if identifier is None:
        return None
    digest = hashlib.sha256(content.SerializeToString(deterministic=True)).digest()
    return AcceptedRequest(method, identifier, digest)


def to_text(value: str, *, field: str, max_bytes: int) -> str:
    """A text as it can be stored: what cannot be is replaced, which may make it longer.

    Raises:
        InvalidArgumentError: it is longer than `max_bytes` then.
    """
    cleaned = clean(value)
    if len(cleaned.encode()) > max_bytes:
        description = f"must be at most {max_bytes} bytes, with U+FFFD for what cannot be stored"
        raise InvalidArgumentError.of_field(field, description)
    return cleaned


def to_json(value: Struct, *, field: str) -> dict[str, Json]:
    """A JSON object off the wire, every string in it as it can be stored.

    Raises:
        InvalidArgumentError: a number in it is not finite, or it is nested too deeply.
    """
    return _object(value, field, depth=1)


def from_json(value: Mapping[str, Json]) -> Struct:
    """A JSON object on the wire; numbers become doubles."""
    struct = Struct()
    struct.update({key: _plain(item) for key, item in value.items()})
    return struct


def from_time(time: datetime) -> Timestamp:
    """An instant on the wire."""
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


def _object(value: Struct, field: str, *, depth: int) -> dict[str, Json]:
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError.of_field(field, f"must have at most {_MAX_DEPTH} levels")
    return {clean(key): _item(item, field, depth=depth) for key, item in value.fields.items()}


def _item(value: Value, field: str, *, depth: int) -> Json:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _object(value.struct_value, field, depth=depth + 1)
        case "list_value":
            items = value.list_value.values
            return [_item(item, field, depth=depth + 1) for item in items]
        case "string_value":
            return clean(value.string_value)
        case "number_value":
            if not math.isfinite(value.number_value):
                raise InvalidArgumentError.of_field(field, "must hold finite numbers only")
            return value.number_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def _plain(value: Json) -> Plain:
    match value:
        case str():
            return value
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case Sequence():
            return [_plain(item) for item in value]
        case _:
            return value
