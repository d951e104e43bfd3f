"""Request ids, and the refusal of what is not offered yet."""

import hashlib

from google.protobuf.message import Message

from services.agent.domain.stores import RequestKey
from services.common.convert import canonical_id
from services.common.errors import InvalidArgumentError


def to_request_key(request_id: str, request: Message) -> RequestKey | None:
    """The key of a request that creates or starts; None where the caller gave no id.

    Args:
        request_id: the caller's id, empty if none.
        request: the request; a repeat must have the same content, its id aside.
    """
    if not request_id:
        return None
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    digest = hashlib.sha256(content.SerializeToString(deterministic=True)).digest()
    return RequestKey(canonical_id(request_id), digest)


def not_offered(field: str) -> InvalidArgumentError:
    """The error for what the contract already names but the service cannot do yet."""
    return InvalidArgumentError.of_field(field, "is not offered yet")
