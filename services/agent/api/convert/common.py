"""Request ids, time zones, and the refusal of what is not offered yet."""

import hashlib

from google.protobuf.message import Message

from services.agent.domain.stores import RequestKey
from services.agent.domain.zones import nearest_zones, zone_of
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


def to_time_zone(name: str, *, field: str) -> str:
    """The name of a time zone; empty if there is none.

    Raises:
        InvalidArgumentError: there is no zone of that name.
    """
    if not name or zone_of(name) is not None:
        return name
    near = " or ".join(nearest_zones(name))
    told = f'must be an IANA time zone such as "Asia/Shanghai"{near and f"; perhaps {near}"}'
    raise InvalidArgumentError.of_field(field, told)
