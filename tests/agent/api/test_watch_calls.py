"""Many watches over one call, as the gateway makes it, over real gRPC and PostgreSQL."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from chatmind.agent.v1 import agent_service_pb2, run_pb2
from chatmind.agent.v1 import run_service_pb2 as pb
from google.rpc import status_pb2
from grpc import aio

from services.common.channel import OutgoingCalls
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner
from services.common.ids import new_id
from services.common.status import RpcFailure, failure_of, failure_of_status
from services.common.tasks import background_tasks
from tests.agent.running import ALICE, BOB, ENOUGH, STRANGER, Keys, RunningAgent, running

MIB = 1024 * 1024


class Lane:
    """One call, and what each of its watches was told."""

    def __init__(self, api: RunningAgent, call: Any) -> None:
        self.told: defaultdict[int, list[pb.WatchedEvent]] = defaultdict(list)
        self.responses: list[pb.WatchSessionsResponse] = []
        self.call = call
        self._keys = api.keys
        self._changed = asyncio.Condition()

    async def read(self) -> None:
        """Note what comes, to the end."""
        while (response := await self.call.read()) is not aio.EOF:
            async with self._changed:
                self.responses.append(response)
                for event in response.events:
                    for watch_id in event.watch_ids:
                        self.told[watch_id].append(event)
                self._changed.notify_all()

    def token(self, identity: Identity) -> str:
        """A token of the gateway's."""
        signer = IdentitySigner("gateway", self._keys.gateway, audience="agent", clock=now)
        return OutgoingCalls(signer).token(identity)

    def watch(
        self, watch_id: int, session_id: str, after: int | None, identity: Identity = ALICE
    ) -> pb.Watch:
        """A watch to begin."""
        return pb.Watch(
            watch_id=watch_id,
            identity_token=self.token(identity),
            session_id=session_id,
            after_sequence=after,
        )

    async def begin(self, *watches: pb.Watch) -> None:
        """Begin watches."""
        await self.call.write(pb.WatchSessionsRequest(watches=watches))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something was told."""
        async with asyncio.timeout(ENOUGH), self._changed:
            await self._changed.wait_for(condition)

    async def begun(self, *watch_ids: int) -> None:
        """Wait until watches have been told all there was."""
        await self.until(lambda: all("heartbeat" in self.kinds(each) for each in watch_ids))

    def kinds(self, watch_id: int) -> list[str]:
        """What kinds of events a watch was told."""
        return [str(event.WhichOneof("event")) for event in self.told[watch_id]]

    def sequences(self, watch_id: int) -> list[int]:
        """The messages that a watch was told."""
        return [
            event.message.sequence
            for event in self.told[watch_id]
            if event.WhichOneof("event") == "message"
        ]

    def failure(self, watch_id: int) -> RpcFailure:
        """Why a watch ended."""
        return failure_of_status(status_pb2.Status.FromString(self.told[watch_id][-1].status))


@asynccontextmanager
async def lane(api: RunningAgent) -> AsyncIterator[Lane]:
    """A call to a service."""
    caller = api.caller(Identity("-", "-", frozenset()))
    opened = Lane(api, caller.runs.WatchSessions(metadata=caller.metadata))
    async with background_tasks() as tasks:
        tasks.start("read", opened.read())
        yield opened
        opened.call.cancel()


class TestWatchSessions:
    async def test_each_watch_is_told_of_its_session_for_its_user(self, api: RunningAgent) -> None:
        bob = api.caller(BOB)
        hers, his = await api.alice.create_session(), await bob.create_session()
        await api.alice.say(hers.id)
        await bob.say(his.id)
        await bob.say(his.id)
        async with lane(api) as opened:
            await opened.begin(opened.watch(1, hers.id, 0), opened.watch(2, his.id, 1, BOB))
            await opened.begun(1, 2)
            await api.alice.say(hers.id)
            await opened.until(lambda: 2 in opened.sequences(1))

            assert opened.sequences(1) == [1, 2]
            assert opened.sequences(2) == [2]
            assert opened.kinds(1)[:3] == ["message", "run", "heartbeat"]

    async def test_one_message_is_sent_once_for_all_who_are_equally_far(
        self, api: RunningAgent
    ) -> None:
        session = await api.alice.create_session()
        async with lane(api) as opened:
            await opened.begin(*(opened.watch(number, session.id, None) for number in range(50)))
            await opened.begun(*range(50))
            responses = len(opened.responses)
            await api.alice.say(session.id)
            await opened.until(lambda: all(opened.sequences(number) for number in range(50)))

            events = [event for each in opened.responses[responses:] for event in each.events]
            [told] = [event for event in events if event.HasField("message")]
            assert sorted(told.watch_ids) == list(range(50))

    async def test_a_refusal_concerns_one_watch_alone(
        self, api: RunningAgent, tmp_path: Path
    ) -> None:
        """And reads alike for an id of somebody else's and one that is nobody's."""
        session = await api.alice.create_session()
        forged = IdentitySigner("gateway", Keys(tmp_path).gateway, audience="agent", clock=now)
        for_another = IdentitySigner("gateway", api.keys.gateway, audience="knowledge", clock=now)
        stranger = new_id()
        async with lane(api) as opened:
            bad = [opened.watch(number, session.id, 0) for number in (1, 2, 3)]
            bad[0].identity_token = OutgoingCalls(forged).token(ALICE)
            bad[1].identity_token = OutgoingCalls(for_another).token(ALICE)
            bad[2].identity_token = ""
            await opened.begin(
                *bad,
                opened.watch(4, session.id, 0, BOB),
                opened.watch(5, session.id, 0, STRANGER),
                opened.watch(6, stranger, 0),
                opened.watch(7, session.id, 99),
                opened.watch(8, session.id, 0),
            )
            await opened.until(lambda: len(opened.told) == 8)
            await opened.begun(8)

            codes = [opened.failure(number).code.name for number in range(1, 8)]
            assert codes == ["UNAUTHENTICATED"] * 3 + ["NOT_FOUND"] * 3 + ["OUT_OF_RANGE"]
            texts = [
                str(opened.failure(number)).replace(session.id, "ID").replace(stranger, "ID")
                for number in (4, 5, 6)
            ]
            assert len(set(texts)) == 1
            await api.alice.say(session.id)
            await opened.until(lambda: opened.sequences(8) == [1])
            assert all(len(opened.told[number]) == 1 for number in range(1, 8))

    async def test_one_that_ends_is_told_no_more(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        async with lane(api) as opened:
            await opened.begin(opened.watch(1, session.id, 0), opened.watch(2, session.id, 0))
            await opened.begun(1, 2)
            await opened.call.write(pb.WatchSessionsRequest(unwatch_ids=[1, 77]))
            # Requests are taken in order, so by the end of this one the other is done.
            await opened.begin(opened.watch(3, session.id, 0))
            await opened.begun(3)
            await api.alice.say(session.id)
            await opened.until(lambda: opened.sequences(2) == [1])

            assert opened.sequences(1) == []

    async def test_a_deleted_session_ends_its_watches(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        async with lane(api) as opened:
            await opened.begin(opened.watch(1, session.id, 0))
            await opened.begun(1)
            delete = agent_service_pb2.DeleteSessionRequest(session_id=session.id)
            await api.alice.call("DeleteSession", delete)

            await opened.until(lambda: opened.kinds(1)[-1] == "status")
            assert opened.failure(1).code is grpc.StatusCode.NOT_FOUND

    async def test_a_run_whose_end_was_missed_is_told_though_there_are_newer_ones(
        self, service: RunningAgent
    ) -> None:
        session = await service.alice.create_session()
        first = await service.alice.ended((await service.alice.say(session.id)).id)
        second = await service.alice.ended((await service.alice.say(session.id)).id)
        async with lane(service) as opened:
            plain = opened.watch(1, session.id, 4)
            knowing = opened.watch(2, session.id, 4)
            knowing.open_run_ids.append(first.id)
            await opened.begin(plain, knowing)
            await opened.begun(1, 2)

            runs = {
                number: [event.run.id for event in opened.told[number] if event.HasField("run")]
                for number in (1, 2)
            }
            assert runs == {1: [second.id], 2: [first.id, second.id]}

    async def test_a_replica_that_stops_says_so_and_ends_the_call_well(
        self, api: RunningAgent
    ) -> None:
        """S8."""
        session = await api.alice.create_session()
        async with lane(api) as opened:
            await opened.begin(opened.watch(1, session.id, 0))
            await opened.begun(1)

            async with asyncio.timeout(api.settings.grace_seconds):
                await api.stop()

            assert await opened.call.code() is grpc.StatusCode.OK
            assert opened.responses[-1].going_away

    async def test_a_caller_that_is_done_ends_the_call(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        async with lane(api) as opened:
            await opened.begin(opened.watch(1, session.id, 0))
            await opened.begun(1)
            await opened.call.done_writing()

            assert await opened.call.code() is grpc.StatusCode.OK

    async def test_an_invalid_watch_is_refused_with_its_field(self, api: RunningAgent) -> None:
        caller = api.caller(ALICE)
        call = caller.runs.WatchSessions(metadata=caller.metadata)
        await call.write(pb.WatchSessionsRequest(watches=[pb.Watch(session_id="none")]))

        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()

        assert failure_of(refused.value).violations[0].field == "watches[0].session_id"

    async def test_a_run_that_goes_on_again_is_told(self, service: RunningAgent) -> None:
        """A retried run's turn is earlier than what a watch looks at."""
        service.model.script()
        session = await service.alice.create_session()
        failed = await service.alice.ended((await service.alice.say(session.id)).id)
        assert failed.state == run_pb2.Run.STATE_ERROR
        async with lane(service) as opened:
            await opened.begin(opened.watch(1, session.id, None))
            await opened.begun(1)
            await service.alice.call("RetryRun", pb.RetryRunRequest(run_id=failed.id))
            await service.alice.ended(failed.id)

            await opened.until(
                lambda: any(
                    event.run.attempt == 2 and event.run.state == run_pb2.Run.STATE_ERROR
                    for event in opened.told[1]
                )
            )


class TestSlowCallers:
    """T-S5, S3: one who does not read is let go, and nothing is held for it."""

    @pytest.mark.parametrize("many", [False, True], ids=["one session", "many sessions"])
    async def test_one_who_does_not_read_is_let_go(
        self, tmp_path: Path, empty_tables: str, many: bool
    ) -> None:
        async with running(
            tmp_path, empty_tables, role="api", write_seconds=0.3, database_pool=2
        ) as api:
            alice = api.alice
            session = await alice.create_session()
            for _ in range(12):
                await alice.say(session.id, "x" * MIB)
            received, ended = [0] * 12, None
            # A busy server takes longer to see that it is not read.
            for seconds in (1, 4, 16):
                if ended is None:
                    received, ended = await self._read_after(
                        seconds, await self._open(api, session.id, many=many)
                    )

        assert ended is not None
        failure = failure_of(ended)
        assert (failure.code, failure.reason) == (grpc.StatusCode.ABORTED, "SLOW_CONSUMER")
        assert len(received) < 12
        if not many:
            resume_after = int(failure.metadata["resume_after_sequence"])
            assert received[-1] - 1 <= resume_after <= received[-1]

    async def _open(self, api: RunningAgent, session_id: str, *, many: bool) -> Any:
        if not many:
            return api.alice.watch(session_id, 0)
        call = api.alice.runs.WatchSessions(metadata=api.alice.metadata)
        watch = Lane(api, call).watch(1, session_id, 0)
        await call.write(pb.WatchSessionsRequest(watches=[watch]))
        return call

    async def _read_after(
        self, seconds: float, call: Any
    ) -> tuple[list[int], aio.AioRpcError | None]:
        """What is there to be read so much later, and what ends it before all has been read."""
        await asyncio.sleep(seconds)
        received: list[int] = []
        try:
            async with asyncio.timeout(ENOUGH):
                while len(received) < 12:
                    response = await call.read()
                    events = getattr(response, "events", [response])
                    received += [
                        each.message.sequence for each in events if each.HasField("message")
                    ]
        except aio.AioRpcError as error:
            return received, error
        call.cancel()
        return received, None
