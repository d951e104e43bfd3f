"""Following a session across interruptions behind the gateway.

The agent service keeps the messages, and each watch of it resumes after the last one that came
through. So when a replica stops or a connection breaks, the client loses a moment, but no message
is missing and none is sent twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from services.common.clock import Clock
from services.common.identity import Identity
from services.gateway.domain.follower import Follower
from services.gateway.domain.messages import Event, GoAway, Heartbeat
from services.gateway.domain.models import SessionId
from services.gateway.domain.ports import Agents, Watches

Send: TypeAlias = Callable[[Event, int], Awaitable[None]]
"""Sends the client an event, with the sequence up to which every message has now been sent; returns
when there is room for the next one."""

_BEATS_PER_SILENCE = 10


class Stream:
    """Sends sessions to clients."""

    def __init__(
        self,
        agents: Agents,
        watches: Watches,
        *,
        clock: Clock,
        draining: asyncio.Event,
        heartbeat: float = 15.0,
    ) -> None:
        """Follow what the watches tell.

        Args:
            agents: know the sessions.
            watches: watch them.
            clock: the time of heartbeats.
            draining: set once this gateway is about to stop.
            heartbeat: seconds of silence after which a heartbeat is sent.
        """
        self._agents = agents
        self._watches = watches
        self._clock = clock
        self._draining = draining
        self._heartbeat = heartbeat
        self._followers: set[Follower] = set()

    async def follow(
        self, identity: Identity, session_id: SessionId, send: Send, *, after: int | None
    ) -> None:
        """Send the events after a sequence, until cancelled or until this gateway is about to stop.

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
        follower = Follower(identity, session_id, after)
        self._followers.add(follower)
        if self._draining.is_set():
            follower.add(GoAway())
        self._watches.begin(follower)
        try:
            await self._deliver(follower, send)
        finally:
            self._followers.discard(follower)
            self._watches.end(follower)

    async def keep(self) -> None:
        """Runs beside the streams: heartbeats while they are silent, and the end when draining."""
        while not self._draining.is_set():
            try:
                async with asyncio.timeout(self._heartbeat / _BEATS_PER_SILENCE):
                    await self._draining.wait()
            except TimeoutError:
                self._beat()
        for follower in self._followers:
            follower.add(GoAway())

    async def _deliver(self, follower: Follower, send: Send) -> None:
        while True:
            event, through = await follower.next()
            await send(event, through)
            if isinstance(event, GoAway):
                return
            if follower.has_room_again:
                self._watches.begin(follower)

    def _beat(self) -> None:
        # A little early rather than a beat late.
        silent_since = time.monotonic() - self._heartbeat * (1 - 0.5 / _BEATS_PER_SILENCE)
        for follower in self._followers:
            if follower.waiting_since is not None and follower.waiting_since <= silent_since:
                follower.add(Heartbeat(self._clock()))
