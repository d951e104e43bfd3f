"""Bounds how many calls go on at once, each kind apart, so that none can crowd out another."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from services.common.interceptors.base import AroundInterceptor, Call
from services.gateway.api.authentication import current_key
from services.gateway.api.methods import Method
from services.gateway.domain.limits import Slots


@dataclass(frozen=True, slots=True)
class Room:
    """The room for each kind of call.

    Attributes:
        calls: one request, one answer.
        uploads: requests that come as a stream.
        streams: answers that go as a stream.
    """

    calls: Slots
    uploads: Slots
    streams: Slots

    def taken(self) -> Mapping[str, int]:
        """How many calls of each kind go on now."""
        kinds = (self.calls, self.uploads, self.streams)
        return {slots.kind: slots.taken for slots in kinds}

    def of(self, method: Method) -> Slots:
        """The room for calls of a method."""
        if method.streams_out:
            return self.streams
        return self.uploads if method.streams_in else self.calls


class LimitsInterceptor(AroundInterceptor):
    """Refuses a call at once where there is no room for it; stands inside of authentication."""

    def __init__(self, methods: Iterable[Method], room: Room) -> None:
        self._slots = {method.path: room.of(method) for method in methods}

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call in its slot, which it has until its last byte is sent, not only written."""
        slots = self._slots.get(call.method)
        if slots is not None:
            key_id = current_key().id
            slots.take(key_id)
            call.context.add_done_callback(
                lambda _: slots.give_back(key_id)  # type: ignore[arg-type]  # stubs want a class
            )
        yield
