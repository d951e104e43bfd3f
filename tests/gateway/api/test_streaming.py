"""How streams to clients end, other than by their clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from chatmind.agent.v1 import run_service_pb2
from chatmind.gateway.v1 import gateway_service_pb2 as pb
from grpc import aio

from services.common.errors import UnavailableError
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.status import RpcFailure, failure_of
from services.common.tasks import background_tasks
from services.gateway.api import authentication
from services.gateway.api.streaming import ClientStreams, OpenStream
from services.gateway.domain.models import ApiKey
from services.gateway.store.memory import MemoryKeyStore
from tests.calls import unary_stream
from tests.common.serving import METHOD, RawHandler, serving
from tests.gateway.domain.fixed import issue
from tests.gateway.installation import ADMIN, ENOUGH, bearer, eventually, open_installation


async def failure(call: Any, received: list[int] | None = None) -> RpcFailure:
    """What a stream ends with, after all that is on its way; notes the sequences of that."""
    try:
        async with asyncio.timeout(ENOUGH):
            while (response := await call.read()) is not aio.EOF:
                if received is not None:
                    received.append(response.through_sequence)
    except aio.AioRpcError as error:
        return failure_of(error)
    pytest.fail("the stream ended well")


async def all_of(call: Any) -> list[Any]:
    """What a stream brings until it ends well."""
    responses = []
    async with asyncio.timeout(ENOUGH):
        while (response := await call.read()) is not aio.EOF:
            responses.append(response)
    assert await call.code() is grpc.StatusCode.OK
    return responses


class TestDraining:
    async def test_streams_end_well_and_say_where_to_resume(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        """Long before the grace time is over; a session watched without a conversion alike."""
        async with open_installation(tmp_path, keys_database, grace_seconds=30) as gateway:
            session = gateway.agent.open(ADMIN)
            request = pb.StreamMessagesRequest(session_id=session.id, after_sequence=0)
            follow = gateway.messages.StreamMessages(request, metadata=bearer(gateway.key))
            path = "/chatmind.agent.v1.RunService/WatchSession"
            watch = gateway.channel.unary_stream(
                path,
                request_serializer=run_service_pb2.WatchSessionRequest.SerializeToString,
                response_deserializer=run_service_pb2.WatchSessionResponse.FromString,
            )(
                run_service_pb2.WatchSessionRequest(session_id=session.id, after_sequence=0),
                metadata=bearer(gateway.key),
            )
            await session.commit("there")
            await follow.read()
            await watch.read()

            async with asyncio.TaskGroup() as group:
                ends = [group.create_task(all_of(call)) for call in (follow, watch)]
                group.create_task(gateway.stop())

        for end in ends:
            last = end.result()[-1]
            assert (last.WhichOneof("event"), last.through_sequence) == ("go_away", 1)
            assert last.go_away.resume_after_sequence == 1

    async def test_a_stream_without_a_place_is_sent_to_another_gateway(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(tmp_path, keys_database, grace_seconds=30) as gateway:
            gateway.knowledge.hold = asyncio.Event()
            path = "/chatmind.knowledge.v1.KnowledgeService/WatchDocument"
            watch = unary_stream(gateway.channel, path)(b"", metadata=bearer(gateway.key))
            await watch.read()

            async with asyncio.TaskGroup() as group:
                end = group.create_task(failure(watch))
                group.create_task(gateway.stop())

        failed = end.result()
        assert (failed.code, failed.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert failed.retry_after is not None


class TestSlowConsumer:
    async def test_a_client_that_does_not_read_is_let_go(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        """T-S5: it learns where to resume, and nothing of it stays behind."""
        async with open_installation(tmp_path, keys_database, write_seconds=0.3) as gateway:
            session = gateway.agent.open(ADMIN)
            for _ in range(30):
                await session.commit("x" * 500_000)
            request = pb.StreamMessagesRequest(session_id=session.id, after_sequence=0)
            with structlog.testing.capture_logs() as lines:
                call = gateway.messages.StreamMessages(request, metadata=bearer(gateway.key))
                first = await call.read()

                await eventually(
                    lambda: any(line.get("reason") == "SLOW_CONSUMER" for line in lines)
                )

            await eventually(lambda: gateway.agent.watches == 0)
            received = [first.through_sequence]
            failed = await failure(call, received)
            assert (failed.code, failed.reason) == (grpc.StatusCode.ABORTED, "SLOW_CONSUMER")
            # The last one may have arrived after all.
            resume_after = int(failed.metadata["resume_after_sequence"])
            assert received[-1] - 1 <= resume_after <= received[-1]
            assert received == list(range(1, len(received) + 1))
            assert len(received) < 30


class Rules:
    """Streams of one method that follow rules which tests set."""

    def __init__(self) -> None:
        self.draining = asyncio.Event()
        self.valid = True
        self.away = False
        self.asked = 0
        self.streams = ClientStreams(
            draining=self.draining, holds=self._holds, recheck_seconds=0.01, write_seconds=ENOUGH
        )

    async def _holds(self, _: ApiKey) -> bool:
        self.asked += 1
        if self.away:
            raise UnavailableError("The database is away.")
        return self.valid

    @asynccontextmanager
    async def serving(
        self, behave: Callable[[OpenStream, bytes], Any], *, ends_itself: bool = False
    ) -> AsyncIterator[Any]:
        """The method, which does this within its stream."""
        key = (await issue(MemoryKeyStore())).key

        async def follow(request: bytes, context: Any) -> None:
            authentication._key.set(key)
            async with self.streams.open(context, ends_itself=ends_itself) as stream:
                await behave(stream, request)

        handler: RawHandler = grpc.unary_stream_rpc_method_handler(follow)
        async with (
            background_tasks() as tasks,
            serving(handler, ErrorStatusInterceptor("gateway.chatmind")) as channel,
        ):
            tasks.start("keep", self.streams.keep())
            yield unary_stream(channel, METHOD)


async def linger(stream: OpenStream, request: bytes) -> None:
    """Write once, then wait."""
    await stream.write(request)
    await asyncio.sleep(ENOUGH)


class TestClientStreams:
    async def test_one_look_is_enough_for_all_streams_of_a_key(self) -> None:
        rules = Rules()
        async with rules.serving(linger) as open_one:
            calls = [open_one(b"x") for _ in range(20)]
            for call in calls:
                await call.read()
            asked = rules.asked
            await eventually(lambda: rules.asked >= asked + 5)
            assert rules.asked < asked + 20

            rules.valid = False
            ends = [await failure(call) for call in calls]

        assert {end.code for end in ends} == {grpc.StatusCode.UNAUTHENTICATED}

    async def test_a_database_that_is_away_says_nothing_against_a_key(self) -> None:
        rules = Rules()
        rules.away = True
        async with rules.serving(linger) as open_one:
            call = open_one(b"x")
            await call.read()
            asked = rules.asked
            await eventually(lambda: rules.asked > asked + 3)
            rules.draining.set()

            assert (await failure(call)).reason == "DRAINING"

    async def test_an_end_in_the_middle_of_the_first_write_reaches_the_client(self) -> None:
        for turns in range(8):
            rules = Rules()

            async def write(stream: OpenStream, request: bytes, rules: Rules = rules) -> None:
                """Write so many turns of the event loop after the drain has begun."""
                rules.draining.set()
                for _ in range(request[0]):
                    await asyncio.sleep(0)
                await linger(stream, request)

            async with rules.serving(write) as open_one:
                assert (await failure(open_one(bytes([turns])))).reason == "DRAINING"

    async def test_a_stream_that_ends_itself_is_left_to_do_so(self) -> None:
        rules = Rules()

        async def say_goodbye(stream: OpenStream, request: bytes) -> None:
            await stream.write(request)
            await rules.draining.wait()
            await asyncio.sleep(0.05)
            await stream.write(b"bye")

        async with rules.serving(say_goodbye, ends_itself=True) as open_one:
            call = open_one(b"hi")
            await call.read()
            rules.draining.set()

            assert await all_of(call) == [b"bye"]

    async def test_what_the_block_raises_is_its_own(self) -> None:
        async def fail(stream: OpenStream, request: bytes) -> None:
            raise UnavailableError("mine")

        async with Rules().serving(fail) as open_one:
            assert (await failure(open_one(b"x"))).message == "mine"

    async def test_a_client_that_leaves_as_its_stream_is_ended_is_gone(self) -> None:
        rules = Rules()
        ended = asyncio.Event()

        async def note(stream: OpenStream, request: bytes) -> None:
            try:
                await linger(stream, request)
            finally:
                ended.set()

        async with rules.serving(note) as open_one:
            call = open_one(b"x")
            await call.read()
            rules.draining.set()
            call.cancel()

            await asyncio.wait_for(ended.wait(), ENOUGH)
        assert await call.code() is grpc.StatusCode.CANCELLED
