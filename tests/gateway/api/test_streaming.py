"""How streams to clients end, other than by their clients."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from chatmind.gateway.v1 import gateway_service_pb2 as pb
from grpc import aio

from services.common.errors import UnauthenticatedError
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.status import RpcFailure, failure_of
from services.gateway.api import authentication
from services.gateway.api.streaming import ClientStreams, ended_by
from services.gateway.domain.errors import InvalidKeyError
from services.gateway.domain.models import ApiKey
from services.gateway.store.memory import MemoryKeyStore
from tests.common.serving import METHOD, serving
from tests.gateway.domain.fixed import issue
from tests.gateway.installation import ADMIN, ENOUGH, bearer, eventually, open_installation


async def failure(call: Any) -> RpcFailure:
    """What a stream ends with, after all that is on its way."""
    try:
        while await call.read() is not aio.EOF:
            pass
    except aio.AioRpcError as error:
        return failure_of(error)
    pytest.fail("the stream ended well")


class TestDraining:
    async def test_streams_end_at_once_and_can_be_resumed_elsewhere(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(tmp_path, keys_database, grace_seconds=30) as gateway:
            session = gateway.agent.open(ADMIN)
            request = pb.StreamMessagesRequest(session_id=session.id, after_sequence=0)
            follow = gateway.messages.StreamMessages(request, metadata=bearer(gateway.key))
            await session.commit("there")
            await follow.read()
            gateway.knowledge.hold = asyncio.Event()
            path = "/chatmind.knowledge.v1.KnowledgeService/WatchDocument"
            watch = gateway.channel.unary_stream(path)(b"", metadata=bearer(gateway.key))
            await watch.read()

            async with asyncio.timeout(ENOUGH), asyncio.TaskGroup() as group:
                ends = [group.create_task(failure(call)) for call in (follow, watch)]
                group.create_task(gateway.stop())

            for end in ends:
                failed = end.result()
                assert (failed.code, failed.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
                assert failed.retry_after is not None


class TestSlowConsumer:
    async def test_a_client_that_does_not_read_is_let_go(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(tmp_path, keys_database, write_seconds=0.3) as gateway:
            session = gateway.agent.open(ADMIN)
            for _ in range(30):
                await session.commit("x" * 500_000)
            request = pb.StreamMessagesRequest(session_id=session.id, after_sequence=0)
            call = gateway.messages.StreamMessages(request, metadata=bearer(gateway.key))
            await call.read()
            await eventually(lambda: gateway.agent.watches == 1)

            await eventually(lambda: gateway.agent.watches == 0)

            failed = await failure(call)
            assert (failed.code, failed.reason) == (grpc.StatusCode.ABORTED, "SLOW_CONSUMER")


class TestOpen:
    async def test_an_end_in_the_middle_of_the_first_write_reaches_the_client(self) -> None:
        issued = await issue(MemoryKeyStore())

        async def holds(_: ApiKey) -> bool:
            return True

        async def follow(turns: bytes, context: Any) -> None:
            """Write so many turns of the event loop after the drain has begun."""
            authentication._key.set(issued.key)
            draining = asyncio.Event()
            streams = ClientStreams(
                draining=draining, holds=holds, recheck_seconds=ENOUGH, write_seconds=ENOUGH
            )
            async with streams.open(context) as write:
                draining.set()
                for _ in range(turns[0]):
                    await asyncio.sleep(0)
                await write(b"first")
                await asyncio.sleep(ENOUGH)

        handler = grpc.unary_stream_rpc_method_handler(follow)
        async with serving(handler, ErrorStatusInterceptor("gateway.chatmind")) as channel:
            for turns in range(8):
                call = channel.unary_stream(METHOD)(bytes([turns]))
                failed = await asyncio.wait_for(failure(call), ENOUGH)

                assert failed.reason == "DRAINING"


class TestEndedBy:
    async def test_a_block_is_interrupted_with_the_error(self) -> None:
        async def end() -> UnauthenticatedError:
            return InvalidKeyError("Gone.")

        with pytest.raises(InvalidKeyError, match="Gone"):
            async with ended_by(end):
                await asyncio.sleep(ENOUGH)

    async def test_a_block_that_ends_leaves_nothing_behind(self) -> None:
        async def end() -> UnauthenticatedError:
            await asyncio.sleep(ENOUGH)
            return InvalidKeyError("Late.")

        before = len(asyncio.all_tasks())
        async with ended_by(end):
            await asyncio.sleep(0)

        assert len(asyncio.all_tasks()) == before

    async def test_an_error_of_the_block_is_its_own(self) -> None:
        async def end() -> UnauthenticatedError:
            await asyncio.sleep(ENOUGH)
            return InvalidKeyError("Late.")

        with pytest.raises(KeyError, match="mine"):
            async with ended_by(end):
                raise KeyError("mine")
