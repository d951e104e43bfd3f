"""What the converters share."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as Protobuf
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from services.agent.domain.stores import RequestKey
from services.common.errors import InvalidArgumentError
from services.common.text import Json, clean


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


def request_key(request_id: str, request: Protobuf) -> RequestKey | None:
    """The key of a request that creates or starts; None where the caller gave no id.

    Args:
        request_id: the caller's id, empty if none.
        request: the request; its content but for the id is what must be the same again.
    """
    if not request_id:
        return None
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    digest = hashlib.sha256(content.SerializeToString(deterministic=True)).digest()
    return RequestKey(canonical(request_id), digest)


def not_offered(field: str) -> InvalidArgumentError:
    """The error for what the contract names already and the service cannot do yet."""
    return InvalidArgumentError.of_field(field, "is not offered yet")


def timestamp(time: datetime) -> Timestamp:
    """An instant on the wire."""
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


def duration(time: timedelta) -> Duration:
    """A length of time on the wire."""
    length = Duration()
    length.FromTimedelta(time)
    return length


def struct(value: Mapping[str, Json]) -> Struct:
    """A JSON object on the wire; numbers become doubles."""
    made = Struct()
    made.update(_plain(value))
    return made


def _plain(value: Mapping[str, Json]) -> dict[str, Any]:
    return {key: _plain_item(item) for key, item in value.items()}


def _plain_item(value: Json) -> Any:
    match value:
        case str():
            return value
        case Mapping():
            return _plain(value)
        case Sequence():
            return [_plain_item(item) for item in value]
        case _:
            return value


def free_text(value: str, *, field: str, most: int) -> str:
    """A text as it can be stored: what cannot be is replaced, which may make it longer.

    Raises:
        InvalidArgumentError: it is longer than `most` bytes then.
    """
    cleaned = clean(value)
    if len(cleaned.encode()) > most:
        raise InvalidArgumentError.of_field(
            field, f"must be at most {most} bytes, with U+FFFD in place of what cannot be stored"
        )
    return cleaned
