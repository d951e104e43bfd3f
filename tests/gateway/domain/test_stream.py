"""Streams to clients, over breaks of what is behind the gateway."""

import asyncio
from contextlib import suppress

import pytest

from services.common.errors import NotFoundError
from services.common.tasks import background_tasks
from services.gateway.domain.messages import Event, GoAway, Heartbeat, Message, RunState
from services.gateway.domain.ports import Place
from services.gateway.domain.stream import Stream
from tests.gateway.domain.fixed import NOON, Clock
from tests.gateway.domain.scripted_agents import (
    ADA,
    HANG,
    SESSION,
    ScriptedAgents,
    ScriptedWatches,
    message,
    run,
)

ENOUGH = 5.0


class Client:
    """Takes events until it has enough, then leaves."""

    def __init__(self, enough: int = 1_000_000) -> None:
        self.events: list[tuple[Event, int]] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._enough = enough

    async def send(self, event: Event, through: int) -> None:
        """Take one."""
        await self.reading.wait()
        self.events.append((event, through))
        if len(self.events) == self._enough:
            raise ClientGoneError

    @property
    def sequences(self) -> list[int]:
        """Those of the messages."""
        return [event.sequence for event, _ in self.events if isinstance(event, Message)]

    async def has(self, count: int) -> None:
        """Wait until it has so many events."""
        async with asyncio.timeout(ENOUGH):
            while len(self.events) < count:  # noqa: ASYNC110 - it takes a few turns of the loop
                await asyncio.sleep(0)


class ClientGoneError(Exception):
    """The client has left."""


class Chat:
    """Streams of one session, and who watches it for them."""

    def __init__(self, *, last_sequence: int = 0, heartbeat: float = HANG) -> None:
        self.watches = ScriptedWatches()
        self.draining = asyncio.Event()
        self.stream = Stream(
            ScriptedAgents(last_sequence=last_sequence),
            self.watches,
            clock=Clock().now,
            draining=self.draining,
            heartbeat=heartbeat,
        )

    async def follow(self, client: Client, after: int | None = 0) -> None:
        """Follow until the client has enough events, or the stream ends."""
        with suppress(ClientGoneError):
            await self.stream.follow(ADA, SESSION, client.send, after=after)


class TestFollow:
    async def test_events_pass_in_order_with_how_far_they_go(self) -> None:
        chat, client = Chat(), Client(4)
        events = (message(1), run(RunState.THINKING), message(2), run(RunState.FINISHED))

        async with asyncio.timeout(ENOUGH), asyncio.TaskGroup() as group:
            group.create_task(chat.follow(client))
            await chat.watches.tell(*events)

        assert client.events == list(zip(events, (1, 1, 2, 2), strict=True))
        assert chat.watches.open == []

    async def test_from_now_on_means_from_when_the_stream_was_opened(self) -> None:
        chat, client = Chat(last_sequence=7), Client(1)

        async with asyncio.timeout(ENOUGH), asyncio.TaskGroup() as group:
            group.create_task(chat.follow(client, after=None))
            await chat.watches.tell(message(7), message(8))

        assert client.sequences == [8]
        assert chat.watches.began == [Place(7, [])]

    async def test_a_refusal_ends_it_after_what_was_told(self) -> None:
        chat, client = Chat(), Client()
        following = asyncio.ensure_future(chat.follow(client))
        await chat.watches.tell(message(1))
        (await chat.watches.begun()).fail(NotFoundError("gone"))

        with pytest.raises(NotFoundError, match="gone"):
            await asyncio.wait_for(following, ENOUGH)

        assert client.sequences == [1]

    async def test_a_slow_client_is_watched_for_again_once_it_has_read_on(self) -> None:
        """S3: it holds up nobody, and misses nothing."""
        chat, client = Chat(), Client(250)
        client.reading.clear()
        async with asyncio.timeout(ENOUGH), asyncio.TaskGroup() as group:
            group.create_task(chat.follow(client))
            while len(client.events) < 250:
                await chat.watches.begun()
                first = chat.watches.began[-1].after + 1
                await chat.watches.tell(*(message(number) for number in range(first, 251)))
                client.reading.set()
                await client.has(min(250, first + 99))

        assert client.sequences == list(range(1, 251))
        assert len(chat.watches.began) == 3

    async def test_leaving_leaves_nothing_behind(self) -> None:
        chat, client = Chat(), Client()
        before = len(asyncio.all_tasks())
        following = asyncio.ensure_future(chat.follow(client))
        await chat.watches.tell(message(1))
        await client.has(1)
        assert len(asyncio.all_tasks()) == before + 1

        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

        assert chat.watches.open == []
        assert len(asyncio.all_tasks()) == before


class TestHeartbeats:
    async def test_silence_is_filled_whatever_happens_behind_the_gateway(self) -> None:
        chat, client = Chat(heartbeat=0.05), Client(5)
        async with asyncio.timeout(ENOUGH), background_tasks() as tasks:
            tasks.start("keep", chat.stream.keep())
            following = tasks.start("follow", chat.follow(client))
            await chat.watches.tell(message(1))
            await following

        assert client.events == [(message(1), 1)] + [(Heartbeat(NOON), 1)] * 4

    async def test_there_are_none_while_there_is_news(self) -> None:
        chat, client = Chat(heartbeat=0.2), Client(60)
        async with asyncio.timeout(ENOUGH), background_tasks() as tasks:
            tasks.start("keep", chat.stream.keep())
            following = tasks.start("follow", chat.follow(client))
            for number in range(1, 61):
                await chat.watches.tell(message(number))
                await asyncio.sleep(0.005)
            await following

        assert client.sequences == list(range(1, 61))


class TestDraining:
    async def test_every_client_is_told_where_to_go_on_and_its_stream_ends_well(self) -> None:
        """S8: after what was on its way."""
        chat, clients = Chat(), [Client() for _ in range(3)]
        async with asyncio.timeout(ENOUGH), background_tasks() as tasks:
            keeping = tasks.start("keep", chat.stream.keep())
            streams = []
            for client in clients:
                streams.append(tasks.start("follow", chat.follow(client)))
                await asyncio.sleep(0)
            for watched in list(chat.watches.open):
                watched.tell(message(1))
            chat.draining.set()
            for each in (keeping, *streams):
                await each

        assert [[(message(1), 1), (GoAway(), 1)]] * 3 == [client.events for client in clients]
        assert chat.watches.open == []

    async def test_one_that_begins_meanwhile_ends_at_once(self) -> None:
        chat, client = Chat(), Client()
        chat.draining.set()

        await asyncio.wait_for(chat.follow(client, after=3), ENOUGH)

        assert client.events == [(GoAway(), 3)]
