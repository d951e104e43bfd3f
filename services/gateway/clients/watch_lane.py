"""One call that carries the watches of many sessions, and the next one when it ends."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import TypeAlias

import structlog
from chatmind.agent.v1 import run_service_pb2 as pb
from chatmind.agent.v1 import run_service_pb2_grpc
from google.rpc import status_pb2
from grpc import aio

from services.common.backoff import Backoff
from services.common.channel import OutgoingCalls
from services.common.errors import AbortedError, ServiceError, UnavailableError
from services.common.identity import Identity
from services.common.status import failure_of_status
from services.common.tasks import task_group
from services.gateway.clients import convert
from services.gateway.clients.failures import error_of
from services.gateway.domain.errors import ServiceUnavailableError
from services.gateway.domain.ports import Watched

_SERVICE = "agent"
_MOST_AT_ONCE = 500
_LOOKS_PER_PATIENCE = 8

# Whom the call itself is made for; it acts on behalf of those whose tokens the watches bring.
_NOBODY = Identity("-", "-", frozenset())

_Call: TypeAlias = "aio.StreamStreamCall[pb.WatchSessionsRequest, pb.WatchSessionsResponse]"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to try to reach the agent service, in seconds.

    Attributes:
        first_patience: for a watch that was never answered.
        patience: for one that was.
        first_pause: before the first retry; it doubles with each, up to `longest_pause`.
        longest_pause: before any retry.
        lasted: a call that lasted so long was not a failed attempt.
    """

    first_patience: float = 2.0
    patience: float = 60.0
    first_pause: float = 0.05
    longest_pause: float = 1.0
    lasted: float = 1.0


@dataclass(slots=True, eq=False)
class _Watch:
    """One watch, over however many calls.

    Attributes:
        watched: the session.
        id: its name in the calls.
        since: when it began, or when the last call that worked ended.
        answered: whether the agent service ever told something of it.
    """

    watched: Watched
    id: int
    since: float
    answered: bool = False


class Lane:
    """Carries watches from call to call."""

    def __init__(self, channel: aio.Channel, calls: OutgoingCalls, *, pace: Pace) -> None:
        self._stub = run_service_pb2_grpc.RunServiceStub(channel)
        self._calls = calls
        self._pace = pace
        self._ids = count(1)
        self._watches: dict[int, _Watch] = {}
        self._by_watched: dict[Watched, _Watch] = {}
        self._to_begin: dict[int, _Watch] = {}
        self._to_end: list[int] = []
        self._wanted = asyncio.Event()
        self._up = False
        self._log = structlog.get_logger("watches")

    def begin(self, watched: Watched) -> None:
        """Watch a session."""
        watch = _Watch(watched, next(self._ids), asyncio.get_running_loop().time())
        self._watches[watch.id] = self._by_watched[watched] = self._to_begin[watch.id] = watch
        self._wanted.set()

    def end(self, watched: Watched) -> None:
        """Watch it no more."""
        watch = self._by_watched.pop(watched, None)
        if watch is not None:
            del self._watches[watch.id]
            if self._to_begin.pop(watch.id, None) is None:
                self._to_end.append(watch.id)
                self._wanted.set()

    async def run(self) -> None:
        """Make one call after the other, as long as there are watches, until cancelled."""
        async with task_group() as group:
            group.create_task(self._lose_patience())
            now = asyncio.get_running_loop().time
            backoff = Backoff(first=self._pace.first_pause, longest=self._pace.longest_pause)
            while True:
                while not self._watches:
                    self._wanted.clear()
                    await self._wanted.wait()
                began = now()
                await self._carry()
                if now() - began >= self._pace.lasted:
                    backoff.reset()
                await asyncio.sleep(backoff.pause())

    async def _carry(self) -> None:
        """Carry all watches over one call, to its end."""
        self._to_begin, self._to_end = dict(self._watches), []
        self._wanted.set()
        now = asyncio.get_running_loop().time
        began = now()
        call = self._stub.WatchSessions(metadata=self._calls.metadata(_NOBODY))
        try:
            async with task_group() as group:
                writing = group.create_task(self._write(call))
                async for response in call:
                    self._up = True
                    for event in response.events:
                        self._tell(event)
                writing.cancel()
        except (aio.AioRpcError, ServiceError) as error:
            self._tell_operator(error)
        finally:
            call.cancel()
            if self._up or now() - began >= self._pace.lasted:
                for watch in self._watches.values():
                    watch.since = now()
            self._up = False

    def _tell_operator(self, error: aio.AioRpcError | ServiceError) -> None:
        cause = error.details() if isinstance(error, aio.AioRpcError) else error.message
        log = self._log.warning if self._up else self._log.debug
        log("watches interrupted", cause=cause, watches=len(self._watches))

    async def _write(self, call: _Call) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            for request in self._requests():
                try:
                    await call.write(request)
                except (asyncio.InvalidStateError, aio.AioRpcError):
                    return  # whoever reads the call learns why it ended

    def _requests(self) -> Iterator[pb.WatchSessionsRequest]:
        """What is to begin and to end, until there is nothing left."""
        while self._to_begin or self._to_end:
            ids = list(islice(self._to_begin, _MOST_AT_ONCE))
            begin = [self._watch_of(self._to_begin.pop(each)) for each in ids]
            end, self._to_end = self._to_end[:_MOST_AT_ONCE], self._to_end[_MOST_AT_ONCE:]
            yield pb.WatchSessionsRequest(watches=begin, unwatch_ids=end)

    def _watch_of(self, watch: _Watch) -> pb.Watch:
        watched, place = watch.watched, watch.watched.resume()
        return pb.Watch(
            watch_id=watch.id,
            identity_token=self._calls.token(watched.identity),
            session_id=watched.session_id,
            after_sequence=place.after,
            open_run_ids=place.open_runs,
        )

    def _tell(self, event: pb.WatchedEvent) -> None:
        """Pass an event on to those it is for.

        Raises:
            UnavailableError, AbortedError: they may go on in another call.
        """
        if event.WhichOneof("event") == "status":
            self._fail(event)
            return
        told = convert.to_told(event)
        for watch_id in event.watch_ids:
            watch = self._watches.get(watch_id)
            if watch is not None:
                watch.answered = True
                if told is not None and not watch.watched.tell(told):
                    self.end(watch.watched)

    def _fail(self, event: pb.WatchedEvent) -> None:
        failure = failure_of_status(status_pb2.Status.FromString(event.status))
        error = error_of(failure) or ValueError(f"a watch was refused: {failure}")
        if isinstance(error, (UnavailableError, AbortedError)):
            raise error
        for watch_id in event.watch_ids:
            if (watch := self._watches.get(watch_id)) is not None:
                self.end(watch.watched)
                watch.watched.fail(error)

    async def _lose_patience(self) -> None:
        """Let watches fail that the agent service has not been there for."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._pace.first_patience / _LOOKS_PER_PATIENCE)
            for watch in () if self._up else list(self._watches.values()):
                pace = self._pace
                patience = pace.patience if watch.answered else pace.first_patience
                if now() - watch.since >= patience:
                    self.end(watch.watched)
                    watch.watched.fail(ServiceUnavailableError(_SERVICE))
