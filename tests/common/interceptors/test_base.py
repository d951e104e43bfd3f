"""Running something around calls, whatever their shape."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from services.common.interceptors.base import AdmittingInterceptor, AroundInterceptor, Call
from tests.calls import stream_stream, stream_unary, unary_stream, unary_unary
from tests.common.serving import METHOD, Context, Handler, serving


class Recorder(AroundInterceptor):
    """Notes when each call begins and how it ends."""

    def __init__(self, *, name: str = "", steps: list[str] | None = None) -> None:
        self.calls: list[Call] = []
        self.steps = [] if steps is None else steps
        self.ended = asyncio.Event()
        self._name = name

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        self.calls.append(call)
        self.steps.append(f"{self._name}in")
        try:
            yield
        except BaseException as error:
            self.steps.append(f"{self._name}{type(error).__name__}")
            raise
        finally:
            self.steps.append(f"{self._name}out")
            self.ended.set()


class Door(AdmittingInterceptor):
    """Notes who comes, and refuses while it is closed."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.closed = False

    async def admit(self, call: Call) -> None:
        self.calls.append(call)
        if self.closed:
            await call.context.abort(grpc.StatusCode.ABORTED, "closed")


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def total(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return b"".join([request async for request in requests])


async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
    for number in range(3):
        yield b"%d" % number


async def count_by_writing(request: bytes, context: Any) -> None:
    for number in range(3):
        await context.write(b"%d" % number)


class Counter:
    """Answers by a bound method behind a partial, which nothing can tell from a coroutine."""

    def __init__(self, step: int) -> None:
        self._step = step

    async def count(self, times: int, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(0, times * self._step, self._step):
            yield b"%d" % number


async def converse(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.upper()


async def answers(channel: aio.Channel, *, stream: bool) -> list[bytes]:
    """All that a call answers."""
    if stream:
        return [answer async for answer in unary_stream(channel, METHOD)(b"")]
    return [await unary_unary(channel, METHOD)(b"")]


class TestShapes:
    async def test_unary_to_unary(self) -> None:
        recorder = Recorder()
        async with serving(echo, recorder) as channel:
            assert await unary_unary(channel, METHOD)(b"hi") == b"hi"

        assert recorder.steps == ["in", "out"]
        assert (recorder.calls[0].method, recorder.calls[0].streaming) == (METHOD, False)

    async def test_stream_to_unary(self) -> None:
        recorder = Recorder()
        handler: Handler = grpc.stream_unary_rpc_method_handler(total)
        async with serving(handler, recorder) as channel:
            assert await stream_unary(channel, METHOD)(iter((b"a", b"b"))) == b"ab"

        assert recorder.steps == ["in", "out"]
        assert recorder.calls[0].streaming

    @pytest.mark.parametrize(
        "behaviour",
        [count, count_by_writing, functools.partial(Counter(1).count, 3)],
        ids=["generator", "coroutine", "partial"],
    )
    async def test_unary_to_stream(self, behaviour: Any) -> None:
        recorder = Recorder()
        handler: Handler = grpc.unary_stream_rpc_method_handler(behaviour)
        async with serving(handler, recorder) as channel:
            assert await answers(channel, stream=True) == [b"0", b"1", b"2"]

        assert recorder.steps == ["in", "out"]
        assert recorder.calls[0].streaming

    async def test_stream_to_stream(self) -> None:
        recorder = Recorder()
        handler: Handler = grpc.stream_stream_rpc_method_handler(converse)
        async with serving(handler, recorder) as channel:
            call = stream_stream(channel, METHOD)(iter((b"a", b"b")))
            assert [answer async for answer in call] == [b"A", b"B"]

        assert recorder.steps == ["in", "out"]

    async def test_a_method_that_is_not_there_is_left_to_grpc(self) -> None:
        recorder = Recorder()
        async with serving(echo, recorder) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, "/test.v1.TestService/Missing")(b"")

        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert recorder.steps == []


class TestAround:
    async def test_the_first_of_several_values_counts(self) -> None:
        recorder = Recorder()
        async with serving(echo, recorder) as channel:
            sent = (("x-one", "1"), ("x-one", "2"), ("x-raw-bin", b"\xff"))
            await unary_unary(channel, METHOD)(b"", metadata=sent)

        metadata = recorder.calls[0].metadata
        assert (metadata["x-one"], metadata["x-raw-bin"]) == ("1", b"\xff")

    @pytest.mark.parametrize("given", [None, 20.0])
    async def test_the_time_left_is_known_where_there_is_a_deadline(
        self, given: float | None
    ) -> None:
        seen: list[float | None] = []

        async def behave(request: bytes, context: Any) -> bytes:
            seen.append(recorder.calls[0].seconds_left)
            return request

        recorder = Recorder()
        async with serving(behave, recorder) as channel:
            await unary_unary(channel, METHOD)(b"", timeout=given)

        (left,) = seen
        # gRPC rounds what it sends up.
        assert left is None if given is None else left is not None and 0 < left < given + 0.5

    async def test_the_outermost_is_entered_first_and_left_last(self) -> None:
        steps: list[str] = []
        chain = [Recorder(name=f"{name} ", steps=steps) for name in ("outer", "inner")]
        async with serving(echo, *chain) as channel:
            await unary_unary(channel, METHOD)(b"")

        assert steps == ["outer in", "inner in", "inner out", "outer out"]

    @pytest.mark.parametrize("shape", ["unary", "generator", "coroutine"])
    async def test_what_the_call_raises_passes_through(self, shape: str) -> None:
        async def fail(request: bytes, context: Context) -> bytes:
            await context.abort(grpc.StatusCode.ABORTED, "no")

        async def fail_in_stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield b"one"
            await context.abort(grpc.StatusCode.ABORTED, "no")

        handler: Handler = {
            "unary": grpc.unary_unary_rpc_method_handler(fail),
            "generator": grpc.unary_stream_rpc_method_handler(fail_in_stream),
            "coroutine": grpc.unary_stream_rpc_method_handler(fail),
        }[shape]
        recorder = Recorder()
        async with serving(handler, recorder) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await answers(channel, stream=shape != "unary")

        assert caught.value.code() is grpc.StatusCode.ABORTED
        assert recorder.steps == ["in", "AbortError", "out"]

    @pytest.mark.parametrize("shape", ["waiting", "writing"])
    async def test_a_client_that_leaves_ends_the_call_at_once(self, shape: str) -> None:
        inner_ended = asyncio.Event()

        async def behave(request: bytes, context: Any) -> AsyncIterator[bytes]:
            try:
                yield b"one"
                while shape == "writing":
                    yield bytes(100_000)
                await asyncio.Event().wait()
            finally:
                inner_ended.set()

        recorder = Recorder()
        async with serving(grpc.unary_stream_rpc_method_handler(behave), recorder) as channel:
            call = unary_stream(channel, METHOD)(b"")
            await call.read()
            call.cancel()
            async with asyncio.timeout(5):
                await inner_ended.wait()
                await recorder.ended.wait()

        assert recorder.steps[1] in {"CancelledError", "GeneratorExit"}


class TestAdmitting:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_call_goes_on_once_it_is_admitted(self, stream: bool) -> None:
        door = Door()
        handler: Handler = grpc.unary_stream_rpc_method_handler(count) if stream else echo
        async with serving(handler, door) as channel:
            first = await answers(channel, stream=stream)
            door.closed = True
            with pytest.raises(aio.AioRpcError) as caught:
                await answers(channel, stream=stream)

        assert first == ([b"0", b"1", b"2"] if stream else [b""])
        assert caught.value.code() is grpc.StatusCode.ABORTED
        assert [(METHOD, stream)] * 2 == [(call.method, call.streaming) for call in door.calls]

    async def test_handlers_that_come_anew_with_each_call_are_all_wrapped(self) -> None:
        class Fresh(grpc.GenericRpcHandler):
            def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
                name = handler_call_details.method.encode()

                async def tell(request: bytes, context: Any) -> bytes:
                    return name

                return grpc.unary_unary_rpc_method_handler(tell)

        door = Door()
        server = aio.server(interceptors=[door])
        server.add_generic_rpc_handlers((Fresh(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            names = [f"/s/{number % 1100}" for number in range(1200)]
            told = [await unary_unary(channel, name)(b"") for name in names]
        await server.stop(None)

        assert [name.encode() for name in names] == told
        assert names == [call.method for call in door.calls]
