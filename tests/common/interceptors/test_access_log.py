"""One line for every call."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

import grpc
import pytest
import structlog
from grpc import aio

from services.common.errors import NotFoundError
from services.common.interceptors.access_log import AccessLogInterceptor
from services.common.interceptors.error_status import ErrorStatusInterceptor
from tests.calls import unary_stream, unary_unary
from tests.common.serving import METHOD, Handler, raising, serving

Lines = list[MutableMapping[str, Any]]


async def logged(
    handler: Handler, call: Callable[[aio.Channel], Any], *interceptors: aio.ServerInterceptor
) -> dict[str, Any]:
    """The line of one call, however it ends."""
    with structlog.testing.capture_logs() as lines:
        async with serving(handler, AccessLogInterceptor(), *interceptors) as channel:
            try:
                await call(channel)
            except aio.AioRpcError:
                pass
            except asyncio.CancelledError:
                pass
            async with asyncio.timeout(5):
                while not lines:  # noqa: ASYNC110 - the log has no event to wait for
                    await asyncio.sleep(0.005)
    (line,) = (line for line in lines if line["event"] == "call")
    return dict(line)


def unary(timeout: float | None = None) -> Callable[[aio.Channel], Any]:
    return lambda channel: unary_unary(channel, METHOD)(b"", timeout=timeout)


async def answer(request: bytes, context: Any) -> bytes:
    return b""


async def wait(request: bytes, context: Any) -> bytes:
    await asyncio.Event().wait()
    return b""


class TestOutcome:
    async def test_an_answer_is_ok(self) -> None:
        line = await logged(answer, unary())

        assert (line["event"], line["outcome"], line["log_level"]) == ("call", "OK", "info")
        assert 0 <= line["ms"] < 5_000

    async def test_an_error_is_its_code(self) -> None:
        failing = raising(NotFoundError("no"))
        line = await logged(failing, unary(), ErrorStatusInterceptor("test.chatmind"))

        assert line["outcome"] == "NOT_FOUND"

    async def test_a_fault_is_internal(self) -> None:
        line = await logged(raising(ZeroDivisionError()), unary(), ErrorStatusInterceptor("x"))

        assert line["outcome"] == "INTERNAL"

    async def test_a_fault_that_nothing_caught_is_what_grpc_makes_of_it(self) -> None:
        line = await logged(raising(ZeroDivisionError()), unary())

        assert line["outcome"] == "UNKNOWN"

    async def test_a_code_that_was_set_without_an_error_counts(self) -> None:
        async def refuse(request: bytes, context: Any) -> bytes:
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            return b""

        assert (await logged(refuse, unary()))["outcome"] == "OUT_OF_RANGE"

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_client_that_leaves_has_cancelled(self, stream: bool) -> None:
        waiting = asyncio.Event()

        async def behave(request: bytes, context: Any) -> AsyncIterator[bytes]:
            waiting.set()
            await asyncio.Event().wait()
            yield b""

        async def leave(channel: aio.Channel) -> None:
            call = unary_stream(channel, METHOD)(b"")
            await asyncio.wait_for(waiting.wait(), 5)
            call.cancel()

        async def wait_for_ever(request: bytes, context: Any) -> bytes:
            waiting.set()
            return await wait(request, context)

        handler: Handler = (
            grpc.unary_stream_rpc_method_handler(behave)
            if stream
            else grpc.unary_unary_rpc_method_handler(wait_for_ever)
        )

        assert (await logged(handler, leave))["outcome"] == "CANCELLED"

    async def test_so_it_has_where_a_write_to_it_failed(self) -> None:
        line = await logged(raising(aio.InternalError("batch failed")), unary())

        assert line["outcome"] == "CANCELLED"

    async def test_a_deadline_that_passes_is_told_from_that(self) -> None:
        assert (await logged(wait, unary(timeout=0.1)))["outcome"] == "DEADLINE_EXCEEDED"


class TestLevel:
    async def test_health_checks_are_for_debugging(self) -> None:
        with structlog.testing.capture_logs() as lines:
            async with serving(answer, AccessLogInterceptor(), service="grpc.health.v1.Health") as (
                channel
            ):
                await unary_unary(channel, "/grpc.health.v1.Health/Method")(b"")

        assert [(line["outcome"], line["log_level"]) for line in lines] == [("OK", "debug")]
