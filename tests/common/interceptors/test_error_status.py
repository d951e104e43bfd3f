"""Errors on their way out."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import grpc
import pytest
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2_grpc

from services.common.errors import (
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    UnavailableError,
)
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.interceptors.request_id import REQUEST_ID_KEY, RequestIdInterceptor
from services.common.status import RpcFailure, failure_of
from tests.calls import unary_stream, unary_unary
from tests.common.serving import METHOD, Context, Handler, raising, serving

CHAIN = (RequestIdInterceptor(lambda: "r1"), ErrorStatusInterceptor("test.chatmind"))
SECRET = "postgresql://ada:hunter2@db/chatmind"


async def failing(handler: Handler) -> tuple[RpcFailure, list[Any]]:
    """How a unary call to this handler fails, and what is logged about it."""
    with structlog.testing.capture_logs() as lines:
        async with serving(handler, *CHAIN) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"")
    return failure_of(caught.value), faults(lines)


def faults(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """What was logged as an error."""
    return [line["event"] for line in lines if line["log_level"] == "error"]


class TestServiceErrors:
    async def test_an_error_leaves_as_its_status_and_is_not_logged(self) -> None:
        failure, logged = await failing(raising(NotFoundError("No.", metadata={"id": "7"})))

        assert failure == RpcFailure(
            grpc.StatusCode.NOT_FOUND, "NOT_FOUND", "No.", metadata={"id": "7"}
        )
        assert logged == []

    async def test_what_a_stream_sent_before_its_error_arrives(self) -> None:
        async def behave(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"one"
            raise UnavailableError("Draining.", retry_after=2)

        async with serving(grpc.unary_stream_rpc_method_handler(behave), *CHAIN) as channel:
            call = unary_stream(channel, METHOD)(b"")
            first = await call.read()
            with pytest.raises(aio.AioRpcError) as caught:
                await call.read()

        assert first == b"one"
        assert failure_of(caught.value).retry_after == 2

    @pytest.mark.parametrize(
        "error",
        [
            ExceptionGroup("tasks", [NotFoundError("No.")]),
            ExceptionGroup("tasks", [ExceptionGroup("more", [NotFoundError("No.")])]),
            ExceptionGroup("tasks", [NotFoundError("No."), InvalidArgumentError("later")]),
        ],
    )
    async def test_an_error_of_a_task_group_is_told_like_a_bare_one(self, error: Exception) -> None:
        failure, logged = await failing(raising(error))

        assert (failure.reason, failure.message) == ("NOT_FOUND", "No.")
        assert logged == []


class TestFaults:
    @pytest.mark.parametrize(
        "error",
        [
            ValueError(SECRET),
            TimeoutError(SECRET),
            OSError(SECRET),
            ExceptionGroup(SECRET, [ValueError(SECRET)]),
            ExceptionGroup(SECRET, [NotFoundError("No."), ValueError(SECRET)]),
            StopAsyncIteration(SECRET),
        ],
        ids=repr,
    )
    async def test_a_fault_is_logged_and_only_its_request_is_told(self, error: Exception) -> None:
        failure, logged = await failing(raising(error))

        assert failure == RpcFailure(
            grpc.StatusCode.INTERNAL,
            "INTERNAL",
            "An internal error occurred; quote request r1 to the operator.",
            metadata={"request_id": "r1"},
        )
        assert logged == ["unhandled error"]

    async def test_the_callers_request_id_is_the_one_to_quote(self) -> None:
        async with serving(raising(ValueError()), *CHAIN) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"", metadata=((REQUEST_ID_KEY, "mine"),))

        assert failure_of(caught.value).metadata == {"request_id": "mine"}

    async def test_an_error_without_a_class_of_its_own_is_internal(self) -> None:
        failure, _ = await failing(raising(ServiceError("Told on purpose.")))

        assert (failure.code.name, failure.message) == ("INTERNAL", "Told on purpose.")


class TestOthersStatuses:
    async def test_a_status_that_was_already_given_stands(self) -> None:
        async def behave(request: bytes, context: Context) -> bytes:
            await context.abort(grpc.StatusCode.ABORTED, "passed on")

        failure, logged = await failing(behave)

        assert (failure.code.name, failure.message) == ("ABORTED", "passed on")
        assert logged == []

    async def test_even_from_within_a_task_group(self) -> None:
        async def behave(request: bytes, context: Any) -> bytes:
            async with asyncio.TaskGroup() as group:
                group.create_task(context.abort(grpc.StatusCode.ABORTED, "passed on"))
            return b""

        failure, logged = await failing(behave)

        assert (failure.code.name, failure.message) == ("ABORTED", "passed on")
        assert logged == []


class TestDeclaredOnly:
    async def test_a_method_that_nobody_wrote_is_unimplemented(self) -> None:
        failure, logged = await failing(health_pb2_grpc.HealthServicer().Check)

        assert failure.code.name == "UNIMPLEMENTED"
        assert logged == []

    async def test_what_a_written_one_does_not_do_is_a_fault(self) -> None:
        failure, logged = await failing(raising(NotImplementedError("not this way")))

        assert failure.code.name == "INTERNAL"
        assert logged == ["unhandled error"]


class TestDeparture:
    async def test_a_write_that_finds_nobody_is_no_fault(self) -> None:
        """Should somebody be there all the same, they get an answer."""
        failure, logged = await failing(raising(aio.InternalError("batch failed")))

        assert failure.reason == "INTERNAL"
        assert logged == []

    @pytest.mark.parametrize("grouped", [False, True])
    async def test_a_client_that_leaves_in_the_middle_is_none_either(self, grouped: bool) -> None:
        ended = asyncio.Event()

        async def write_on(context: Any) -> None:
            while True:
                await context.write(bytes(3_000_000))

        async def behave(request: bytes, context: Any) -> None:
            try:
                if not grouped:
                    await write_on(context)
                async with asyncio.TaskGroup() as group:
                    group.create_task(write_on(context))
            finally:
                ended.set()

        with structlog.testing.capture_logs() as lines:
            async with serving(grpc.unary_stream_rpc_method_handler(behave), *CHAIN) as channel:
                call = unary_stream(channel, METHOD)(b"")
                await call.read()
                call.cancel()
                await asyncio.wait_for(ended.wait(), 5)

        assert faults(lines) == []
