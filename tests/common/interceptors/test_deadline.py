"""The time that a call may take."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from services.common.errors import NotFoundError
from services.common.interceptors.deadline import DeadlineInterceptor, time_left
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.status import RpcFailure, failure_of
from tests.calls import unary_stream, unary_unary
from tests.common.serving import METHOD, Handler, raising, serving


def chain(seconds: float) -> tuple[aio.ServerInterceptor, ...]:
    return ErrorStatusInterceptor("test.chatmind"), DeadlineInterceptor(seconds)


async def tell(request: bytes, context: Any) -> bytes:
    """How much time is left, given as many seconds at most as were sent."""
    return str(time_left(float(request))).encode()


class TestDeadline:
    async def test_a_call_without_a_deadline_gets_one(self) -> None:
        ended = []

        async def wait(request: bytes, context: Any) -> bytes:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cleaned up")
            return b""

        async with serving(wait, *chain(0.05)) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"")

        assert failure_of(caught.value) == RpcFailure(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "DEADLINE_EXCEEDED",
            "The call took longer than 0.05 seconds; set a deadline for more.",
            metadata={"seconds": "0.05"},
        )
        assert ended == ["cleaned up"]

    async def test_a_client_may_wait_for_longer(self) -> None:
        async def take_a_while(request: bytes, context: Any) -> bytes:
            await asyncio.sleep(0.1)
            return b"done"

        async with serving(take_a_while, *chain(0.01)) as channel:
            assert await unary_unary(channel, METHOD)(b"", timeout=20) == b"done"

    async def test_streams_last_as_long_as_they_want(self) -> None:
        async def watch(request: bytes, context: Any) -> AsyncIterator[bytes]:
            await asyncio.sleep(0.1)
            yield b"news"

        handler: Handler = grpc.unary_stream_rpc_method_handler(watch)
        async with serving(handler, *chain(0.01)) as channel:
            assert [news async for news in unary_stream(channel, METHOD)(b"")] == [b"news"]

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (TimeoutError(), grpc.StatusCode.INTERNAL),
            (NotFoundError("no"), grpc.StatusCode.NOT_FOUND),
        ],
    )
    async def test_other_errors_stay_what_they_are(
        self, error: Exception, code: grpc.StatusCode
    ) -> None:
        async with serving(raising(error), *chain(20)) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"")

        assert caught.value.code() is code


class TestTimeLeft:
    def test_outside_of_a_call_there_is_all_the_time(self) -> None:
        assert time_left(7) == 7

    @pytest.mark.parametrize(
        ("deadline", "at_most", "least", "most"),
        [
            (None, b"7", 7, 7),
            (None, b"100", 18, 20),
            (10.0, b"7", 7, 7),
            (10.0, b"30", 8, 10),
        ],
    )
    async def test_a_call_inward_gets_less_than_what_is_left(
        self, deadline: float | None, at_most: bytes, least: float, most: float
    ) -> None:
        async with serving(tell, *chain(20)) as channel:
            left = float(await unary_unary(channel, METHOD)(at_most, timeout=deadline))

        assert least <= left <= most

    async def test_there_is_always_a_moment(self) -> None:
        async with serving(tell, *chain(0.2)) as channel:
            assert float(await unary_unary(channel, METHOD)(b"7")) > 0
