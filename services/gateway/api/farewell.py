"""The last event of a forwarded stream when the gateway drains, where its contract has one."""

from chatmind.agent.v1 import run_service_pb2
from google.protobuf.message import DecodeError

_WATCH_SESSION = "/chatmind.agent.v1.RunService/WatchSession"


def farewell(path: str, request: bytes, last: bytes) -> bytes | None:
    """The event that tells the client to resume elsewhere; None if there is none.

    Args:
        path: the method, `/package.Service/Method`.
        request: what the client asked for.
        last: the last response it was sent; empty if there was none.
    """
    if path != _WATCH_SESSION:
        return None
    try:
        after = _after(request, last)
    except DecodeError:
        return None
    if after is None:
        return None
    going = run_service_pb2.WatchSessionResponse(through_sequence=after)
    going.go_away.resume_after_sequence = after
    return going.SerializeToString()


def _after(request: bytes, last: bytes) -> int | None:
    if last:
        return run_service_pb2.WatchSessionResponse.FromString(last).through_sequence
    asked = run_service_pb2.WatchSessionRequest.FromString(request)
    return asked.after_sequence if asked.HasField("after_sequence") else None
