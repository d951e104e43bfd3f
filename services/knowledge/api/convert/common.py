"""Request ids and JSON from the wire."""

import hashlib
import math

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value

from services.common.convert import canonical_id
from services.common.errors import InvalidArgumentError
from services.common.text import Json, clean
from services.knowledge.domain.models import AcceptedRequest, RequestId

# Protocol Buffers reads 100 levels of messages; an object takes three, and answers hold it deeper
# than requests do.
_MAX_DEPTH = 30


def to_request_id(identifier: str) -> RequestId | None:
    """A request id; None where the caller gave none."""
    return RequestId(canonical_id(identifier)) if identifier else None


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


def to_json(value: Struct, *, field: str) -> dict[str, Json]:
    """A JSON object off the wire, every string in it as it can be stored.

    Raises:
        InvalidArgumentError: a number in it is not finite, or it is nested too deeply.
    """
    return _object(value, field, depth=1)


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
