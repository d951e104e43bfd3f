"""Following a session across interruptions behind the gateway.

The agent service keeps the messages, and each watch of it resumes after the last one that came
through. So when a replica stops or a connection breaks, the client loses a moment, but no message
is missing and none is sent twice.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from services.common.clock import Clock
from services.common.errors import AbortedError, ServiceError, UnavailableError
from services.common.identity import Identity
from services.common.tasks import background_tasks
from services.gateway.domain.errors import ServiceUnavailableError
from services.gateway.domain.messages import Event, Heartbeat, Message, RunUpdate
from services.gateway.domain.models import RunId, SessionId
from services.gateway.domain.ports import Agents

Send: TypeAlias = Callable[[Event, int], Awaitable[None]]
"""Sends the client an event, with the sequence up to which every message has now been sent; returns
when there is room for the next one."""

_Queue: TypeAlias = "asyncio.Queue[tuple[Event, int] | ServiceError]"

_READ_AHEAD = 8
_MOST_RUNS = 64


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a stream, in seconds.

    Attributes:
        heartbeat: the longest silence.
        first_patience: how long to try to reach the agent service at the start.
        patience: how long to try to reach it again later.
        first_pause: before the first retry; it doubles with each, up to `longest_pause`.
        longest_pause: before any retry.
        lasted: a watch that lasted so long was not a failed attempt.
    """

    heartbeat: float = 15.0
    first_patience: float = 2.0
    patience: float = 60.0
    first_pause: float = 0.05
    longest_pause: float = 1.0
    lasted: float = 1.0


class Stream:
    """Sends sessions to clients."""

    def __init__(self, agents: Agents, *, pace: Pace, clock: Clock) -> None:
        self._agents = agents
        self._pace = pace
        self._clock = clock

    async def follow(
        self, identity: Identity, session_id: SessionId, send: Send, *, after: int | None
    ) -> None:
        """Send the events after a sequence, until cancelled.

        Args:
            identity: on whose behalf.
            session_id: the session.
            send: sends one event.
            after: the last sequence that the client has; None for only what is new from now on.

        Raises:
            ServiceError: the agent service refuses, or stays unreachable.
        """
        if after is None:
            after = await self._agents.last_sequence(identity, session_id)
        queue: _Queue = asyncio.Queue(_READ_AHEAD)
        watch = _Watch(self._agents, identity, session_id, after)
        async with background_tasks() as tasks:
            tasks.start("watch session", self._read(watch, queue))
            await self._deliver(queue, send, through=after)

    async def _deliver(self, queue: _Queue, send: Send, *, through: int) -> None:
        while True:
            event: Event
            try:
                async with asyncio.timeout(self._pace.heartbeat):
                    item = await queue.get()
            except TimeoutError:
                event = Heartbeat(self._clock())
            else:
                if isinstance(item, ServiceError):
                    raise item
                event, through = item
            await send(event, through)

    async def _read(self, watch: "_Watch", queue: _Queue) -> None:
        now = asyncio.get_running_loop().time
        until = now() + self._pace.first_patience
        pause = self._pace.first_pause
        while True:
            began, error = now(), await watch.once(queue)
            lasted = now() - began >= self._pace.lasted
            if watch.heard or lasted:
                until = now() + self._pace.patience
            if lasted:
                pause = self._pace.first_pause
            if error is not None or now() >= until:
                await queue.put(error or ServiceUnavailableError("agent"))
                return
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            pause = min(2 * pause, self._pace.longest_pause)


class _Watch:
    """Consecutive watches of one session, each of which continues where the last one ended.

    Attributes:
        heard: whether the present watch has brought any event.
    """

    def __init__(
        self, agents: Agents, identity: Identity, session_id: SessionId, after: int
    ) -> None:
        self.heard = False
        self._agents = agents
        self._identity = identity
        self._session_id = session_id
        self._through = after
        self._runs: OrderedDict[RunId, RunUpdate] = OrderedDict()

    async def once(self, queue: _Queue) -> ServiceError | None:
        """Queue what is new until the watch ends; returns the error if a retry would not help."""
        self.heard = False
        open_runs = [run for run in self._runs.values() if not (run.state and run.state.final)]
        events = self._agents.watch(self._identity, self._session_id, after=self._through)
        try:
            async with aclosing(events):
                async for event in events:
                    self.heard = True
                    if self._is_news(event):
                        await queue.put((event, self._through))
                    if open_runs and not isinstance(event, Message):
                        await self._catch_up(open_runs, queue)
                        open_runs = []
        except (UnavailableError, AbortedError):
            return None
        except ServiceError as error:
            return error
        return None

    async def _catch_up(self, open_runs: Sequence[RunUpdate], queue: _Queue) -> None:
        """Queue updates of runs that may have ended between two watches, after their messages."""
        for run in open_runs:
            if run is self._runs.get(run.run_id):
                update = await self._agents.get_run(self._identity, run.run_id)
                if self._has_changed(update):
                    await queue.put((update, self._through))

    def _is_news(self, event: Event) -> bool:
        match event:
            case Message():
                news = event.sequence > self._through
                self._through = max(self._through, event.sequence)
                return news
            case RunUpdate():
                return self._has_changed(event)
            case Heartbeat():
                return False
            case _:
                assert_never(event)

    def _has_changed(self, update: RunUpdate) -> bool:
        """Whether this is news: a new watch repeats the last state of the newest run."""
        before = self._runs.get(update.run_id)
        self._runs[update.run_id] = update
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        return update != before
