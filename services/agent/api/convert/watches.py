"""What those who watch are told, for the wire."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from chatmind.agent.v1 import run_service_pb2 as pb

from services.agent.api.convert.runs import from_run
from services.agent.api.convert.sessions import from_message
from services.agent.domain.messages import Message
from services.agent.domain.run_models import Run
from services.agent.domain.watch.position import CaughtUp
from services.agent.domain.watch.watch import Event, GoAway, Heartbeat
from services.agent.domain.watch.watching import Told
from services.common.errors import ServiceError
from services.common.status import to_status

_RESPONSE_BYTES = 1024 * 1024


def from_event(value: Event) -> pb.WatchSessionResponse:
    """One event of one session."""
    told = pb.WatchSessionResponse(through_sequence=value.through)
    match value.what:
        case Message():
            told.message.CopyFrom(from_message(value.what))
        case Run():
            told.run.CopyFrom(from_run(value.what))
        case Heartbeat(time):
            told.heartbeat.time.FromDatetime(time)
        case GoAway():
            told.go_away.resume_after_sequence = value.through
        case _:
            assert_never(value.what)
    return told


def from_told(told: Iterable[Told], *, domain: str) -> Iterator[pb.WatchSessionsResponse]:
    """Events of many sessions, in responses of moderate size; errors name `domain`."""
    response, size = pb.WatchSessionsResponse(), 0
    for each in told:
        event = _event(each, domain=domain)
        response.events.append(event)
        size += event.ByteSize()
        if size >= _RESPONSE_BYTES:
            yield response
            response, size = pb.WatchSessionsResponse(), 0
    if response.events:
        yield response


def _event(told: Told, *, domain: str) -> pb.WatchedEvent:
    event = pb.WatchedEvent(watch_ids=told.watch_ids, through_sequence=told.through)
    match told.what:
        case Message():
            event.message.CopyFrom(from_message(told.what))
        case Run():
            event.run.CopyFrom(from_run(told.what))
        case CaughtUp():
            event.heartbeat.SetInParent()
        case ServiceError():
            event.status = to_status(told.what, domain=domain).SerializeToString()
        case _:
            assert_never(told.what)
    return event
