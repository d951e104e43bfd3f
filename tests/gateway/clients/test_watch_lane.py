"""Watches that share a call, against a server that plays what a test wrote down."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from chatmind.agent.v1 import run_pb2, run_service_pb2_grpc, session_pb2
from chatmind.agent.v1 import run_service_pb2 as pb
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc import aio

from cli.local.ports import free_ports
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.errors import NotFoundError, ServiceError, UnavailableError
from services.common.identity import Identity, IdentitySigner, IdentityVerifier
from services.common.ids import new_id
from services.common.status import to_status
from services.common.tasks import background_tasks
from services.gateway.clients.watch_lane import Lane, Pace
from services.gateway.clients.watches import SessionWatches
from services.gateway.domain.errors import ServiceUnavailableError
from services.gateway.domain.messages import Message, RunState, RunUpdate, Told
from services.gateway.domain.models import RunId, SessionId
from services.gateway.domain.ports import Place
from tests.gateway.installation import ENOUGH, eventually
from tests.servicers import incomplete

ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")
PACE = Pace(first_patience=0.4, patience=0.4, first_pause=0.005, longest_pause=0.01, lasted=0.2)

Write = Callable[[pb.WatchSessionsResponse], Awaitable[None]]
Play = Callable[["Call"], Awaitable[None]]


@dataclass
class Client:
    """One who watches, and has room for so many events; satisfies `Watched`."""

    identity: Identity = ADA
    session_id: SessionId = field(default_factory=lambda: SessionId(new_id()))
    after: int = 0
    open_runs: list[RunId] = field(default_factory=list)
    room: int = 1_000_000
    told: list[Told] = field(default_factory=list)
    failure: Exception | None = None

    __hash__ = object.__hash__

    def resume(self) -> Place:
        """Where it is."""
        return Place(self.after, self.open_runs)

    def tell(self, event: Told) -> bool:
        """Take an event if there is room."""
        if len(self.told) >= self.room:
            return False
        self.told.append(event)
        if isinstance(event, Message):
            self.after = event.sequence
        return True

    def fail(self, error: Exception) -> None:
        """Remember why."""
        self.failure = error

    def knows(self, count: int) -> bool:
        """Whether it was told so many events."""
        return len(self.told) == count

    @property
    def sequences(self) -> list[int]:
        """Those of its messages."""
        return [event.sequence for event in self.told if isinstance(event, Message)]


class Call:
    """One call of the lane's, as its server sees it."""

    def __init__(self, requests: AsyncIterator[pb.WatchSessionsRequest], context: Any) -> None:
        self.watches: dict[int, pb.Watch] = {}
        self.begun: list[pb.Watch] = []
        self.requests = 0
        self._context = context
        self._requests = requests
        self._changed = asyncio.Condition()

    async def read(self) -> None:
        """Note what comes in."""
        async for request in self._requests:
            async with self._changed:
                self.requests += 1
                self.begun += request.watches
                self.watches.update({watch.watch_id: watch for watch in request.watches})
                for watch_id in request.unwatch_ids:
                    self.watches.pop(watch_id, None)
                self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(ENOUGH), self._changed:
            await self._changed.wait_for(condition)

    async def watched(self, count: int = 1) -> list[pb.Watch]:
        """The watches, once there are so many."""
        await self.until(lambda: len(self.watches) == count)
        return list(self.watches.values())

    async def send(self, *events: pb.WatchedEvent, going_away: bool = False) -> None:
        """Send a response."""
        await self._context.write(pb.WatchSessionsResponse(events=events, going_away=going_away))

    async def say(self, *sequences: int) -> None:
        """Tell all watches of messages."""
        ids = list(self.watches)
        for sequence in sequences:
            message = session_pb2.Message(sequence=sequence, text=str(sequence))
            await self.send(
                pb.WatchedEvent(watch_ids=ids, message=message, through_sequence=sequence)
            )

    async def refuse(self, error: ServiceError, *watch_ids: int) -> None:
        """End watches with an error."""
        status = to_status(error, domain="agent.chatmind").SerializeToString()
        await self.send(pb.WatchedEvent(watch_ids=watch_ids, status=status))

    async def answer(self) -> None:
        """Tell all watches that they have begun."""
        await self.send(pb.WatchedEvent(watch_ids=list(self.watches), heartbeat=pb.Heartbeat()))


async def for_ever(_: Call) -> None:
    """Never end."""
    await asyncio.sleep(3600)


class Server(run_service_pb2_grpc.RunServiceServicer):
    """Plays one script for each call, the last one for ever."""

    def __init__(self, *plays: Play) -> None:
        self.calls: list[Call] = []
        self.key = Ed25519PrivateKey.generate()
        self.port = next(free_ports())
        self._plays = list(plays)
        self._server: aio.Server | None = None

    async def WatchSessions(  # type: ignore[override]  # noqa: N802 - a coroutine that writes
        self, requests: Any, context: Any
    ) -> None:
        """Play the next script."""
        call = Call(requests, context)
        self.calls.append(call)
        play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
        async with background_tasks() as tasks:
            tasks.start("read", call.read())
            await play(call)

    async def start(self) -> None:
        """Serve."""
        self._server = aio.server()
        run_service_pb2_grpc.add_RunServiceServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self._server.start()

    async def stop(self) -> None:
        """End at once."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def verify(self, watch: pb.Watch) -> Identity:
        """On whose behalf a watch is."""
        verifier = IdentityVerifier("agent", {"gateway": self.key.public_key()}, clock=now)
        return verifier.identity(watch.identity_token)


def playing(*plays: Play) -> Server:
    """A server with these scripts."""
    return incomplete(Server)(*plays)


@asynccontextmanager
async def lane(server: Server, *, pace: Pace = PACE, started: bool = True) -> AsyncIterator[Lane]:
    """A lane to a server."""
    signer = IdentitySigner("gateway", server.key, audience="agent", clock=now)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        if started:
            await server.start()
        target = f"127.0.0.1:{server.port}"
        channel = await stack.enter_async_context(open_channel(target, max_message_bytes=2**20))
        opened = Lane(channel, OutgoingCalls(signer), pace=pace)
        tasks = await stack.enter_async_context(background_tasks())
        tasks.start("lane", opened.run())
        yield opened


class TestWatching:
    async def test_each_watch_has_its_user_its_session_and_its_place(self) -> None:
        server = playing(for_ever)
        run_id = RunId(new_id())
        clients = Client(after=3), Client(BOB, open_runs=[run_id])
        async with lane(server) as opened:
            for client in clients:
                opened.begin(client)
            await eventually(lambda: bool(server.calls))
            watches = await server.calls[0].watched(2)

            assert [server.verify(watch) for watch in watches] == [ADA, BOB]
        assert [client.session_id for client in clients] == [each.session_id for each in watches]
        assert [each.after_sequence for each in watches] == [3, 0]
        assert [list(each.open_run_ids) for each in watches] == [[], [run_id]]

    async def test_events_reach_those_they_are_for(self) -> None:
        async def play(call: Call) -> None:
            _, second = await call.watched(2)
            run = run_pb2.Run(id="r", session_id="s", state=run_pb2.Run.STATE_THINKING)
            await call.say(1)
            await call.send(pb.WatchedEvent(watch_ids=[second.watch_id, 99], run=run))
            await for_ever(call)

        clients = Client(), Client()
        async with lane(playing(play)) as opened:
            for client in clients:
                opened.begin(client)
            await eventually(lambda: len(clients[1].told) == 2)

        assert [len(client.told) for client in clients] == [1, 2]
        assert clients[1].told[1] == RunUpdate(RunId("r"), SessionId("s"), RunState.THINKING)

    async def test_many_that_begin_at_once_share_few_requests(self) -> None:
        server = playing(for_ever)
        async with lane(server) as opened:
            for _ in range(1200):
                opened.begin(Client())
            await eventually(lambda: bool(server.calls))
            await server.calls[0].watched(1200)

        assert server.calls[0].requests == 3

    async def test_one_that_ends_is_watched_no_more(self) -> None:
        server = playing(for_ever)
        staying, leaving, gone = Client(), Client(), Client()
        async with lane(server) as opened:
            for client in (staying, leaving, gone):
                opened.begin(client)
            opened.end(gone)
            await eventually(lambda: bool(server.calls))
            await server.calls[0].watched(2)
            opened.end(leaving)
            opened.end(leaving)

            (left,) = await server.calls[0].watched(1)
        assert left.session_id == staying.session_id
        assert len(server.calls[0].begun) == 2

    async def test_one_without_room_holds_up_nobody(self) -> None:
        """S3: it is watched no more until it asks for it again."""

        async def play(call: Call) -> None:
            await call.watched(2)
            await call.say(*range(1, 11))
            await call.watched(1)
            await call.watched(2)
            await call.say(11)
            await for_ever(call)

        server = playing(play)
        full, free = Client(room=4), Client()
        async with lane(server) as opened:
            opened.begin(full)
            opened.begin(free)
            await eventually(lambda: free.sequences == list(range(1, 11)))
            await server.calls[0].watched(1)
            full.room = 100
            opened.begin(full)
            await eventually(lambda: 11 in full.sequences)

        again = server.calls[0].begun[-1]
        assert (again.session_id, again.after_sequence) == (full.session_id, 4)
        assert again.watch_id not in {watch.watch_id for watch in server.calls[0].begun[:2]}

    async def test_there_is_no_call_while_nobody_watches(self) -> None:
        server = playing(for_ever)
        async with lane(server) as opened:
            await asyncio.sleep(0.1)
            assert server.calls == []

            opened.begin(Client())
            await eventually(lambda: len(server.calls) == 1)


class TestBreaks:
    @pytest.mark.parametrize("how", ["going away", "ended", "failed", "refused for now"])
    async def test_every_watch_goes_on_where_it_was(self, how: str) -> None:
        async def play(call: Call) -> None:
            first, _ = await call.watched(2)
            await call.say(1, 2)
            if how == "failed":
                raise RuntimeError("lost")
            if how == "refused for now":
                await call.refuse(UnavailableError("The database is away."), first.watch_id)
                await for_ever(call)
            if how == "going away":
                await call.send(going_away=True)

        async def go_on(call: Call) -> None:
            await call.watched(2)
            await call.say(3)
            await for_ever(call)

        server = playing(play, go_on)
        clients = Client(), Client()
        async with lane(server) as opened:
            for client in clients:
                opened.begin(client)
            await eventually(lambda: all(len(client.told) == 3 for client in clients))

        assert [client.sequences for client in clients] == [[1, 2, 3]] * 2
        assert [watch.after_sequence for watch in server.calls[1].begun] == [2, 2]

    async def test_a_server_that_is_restarted_costs_nothing(self) -> None:
        async def play(call: Call) -> None:
            (watch,) = await call.watched()
            await call.say(watch.after_sequence + 1)
            await for_ever(call)

        server = playing(play)
        client = Client()
        async with lane(server, pace=Pace(first_pause=0.005)) as opened:
            opened.begin(client)
            for restart in range(1, 4):
                await eventually(partial(client.knows, restart))
                await server.stop()
                await server.start()
            await eventually(lambda: len(client.told) == 4)

        assert client.sequences == [1, 2, 3, 4]
        assert client.failure is None

    async def test_a_refusal_concerns_one_watch_alone(self) -> None:
        async def play(call: Call) -> None:
            first, _ = await call.watched(2)
            await call.refuse(NotFoundError("gone", metadata={"id": "7"}), first.watch_id)
            await call.say(1)
            await for_ever(call)

        server = playing(play)
        refused, other = Client(), Client()
        async with lane(server) as opened:
            opened.begin(refused)
            opened.begin(other)
            await eventually(lambda: other.sequences == [1])

            assert isinstance(refused.failure, NotFoundError)
            assert refused.failure.metadata == {"id": "7"}
        assert (refused.told, other.failure, len(server.calls)) == ([], None, 1)


class TestPatience:
    async def test_a_service_that_is_down_at_first_is_soon_given_up(self) -> None:
        client = Client()
        pace = Pace(first_patience=0.2, patience=60, first_pause=0.005, longest_pause=0.01)
        async with lane(playing(for_ever), pace=pace, started=False) as opened:
            opened.begin(client)
            await eventually(lambda: client.failure is not None)

        assert isinstance(client.failure, ServiceUnavailableError)

    async def test_one_that_goes_away_is_waited_for_longer(self) -> None:
        async def play(call: Call) -> None:
            await call.watched()
            await call.answer()
            await for_ever(call)

        server, known, unknown = playing(play), Client(), Client()
        pace = Pace(first_patience=0.2, patience=1.0, first_pause=0.005, longest_pause=0.01)
        async with lane(server, pace=pace) as opened:
            opened.begin(known)
            await eventually(lambda: bool(server.calls))
            await server.calls[0].watched()
            await asyncio.sleep(0.05)
            await server.stop()
            opened.begin(unknown)
            await eventually(lambda: unknown.failure is not None)
            assert known.failure is None

            await eventually(lambda: known.failure is not None)

    async def test_patience_begins_anew_with_every_sign_of_life(self) -> None:
        async def flap(call: Call) -> None:
            await call.watched()
            await call.answer()

        async def go_on(call: Call) -> None:
            await call.watched()
            await call.say(1)
            await for_ever(call)

        client = Client()
        plays: Sequence[Play] = [flap] * 100
        async with lane(playing(*plays, go_on)) as opened:
            opened.begin(client)
            await eventually(lambda: client.sequences == [1])

        assert client.failure is None

    async def test_a_call_that_lasted_is_a_sign_of_life(self) -> None:
        async def last(call: Call) -> None:
            await call.watched()
            await asyncio.sleep(PACE.lasted * 1.5)

        async def go_on(call: Call) -> None:
            await call.watched()
            await call.say(1)
            await for_ever(call)

        client = Client()
        async with lane(playing(last, last, last, go_on)) as opened:
            opened.begin(client)
            await eventually(lambda: client.sequences == [1] or client.failure is not None)

        assert client.failure is None


class TestLanes:
    async def test_a_session_keeps_to_one_call(self) -> None:
        server = playing(for_ever)
        signer = IdentitySigner("gateway", server.key, audience="agent", clock=now)
        clients = [Client() for _ in range(40)]
        twins = [Client(session_id=client.session_id) for client in clients]
        await server.start()
        async with (
            open_channel(f"127.0.0.1:{server.port}", max_message_bytes=2**20) as channel,
            background_tasks() as tasks,
        ):
            watches = SessionWatches(channel, OutgoingCalls(signer), pace=PACE)
            tasks.start("watches", watches.run())
            for client in (*clients, *twins):
                watches.begin(client)
            await eventually(lambda: sum(len(call.begun) for call in server.calls) == 80)
            for client in clients:
                watches.end(client)
            await eventually(lambda: sum(len(call.watches) for call in server.calls) == 40)
        await server.stop()

        sessions = [{watch.session_id for watch in call.begun} for call in server.calls]
        assert 1 < len(server.calls) <= 4
        assert sum(len(each) for each in sessions) == 40
