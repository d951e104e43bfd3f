"""A server from its first call to its last."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from services.common.server import ListenError, RunningServer, serve
from services.common.settings import ServerSettings
from tests.calls import health_of, read, unary_unary
from tests.common.serving import METHOD, SERVICE, RawHandler

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def settings(tmp_path: Path, **changes: Any) -> ServerSettings:
    usual: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "identity_dir": tmp_path,
        "drain_seconds": 0,
        "grace_seconds": 5,
    }
    return ServerSettings(**(usual | changes))


@asynccontextmanager
async def running(
    settings: ServerSettings,
    handler: "RawHandler | None" = None,
    *,
    draining: asyncio.Event | None = None,
) -> AsyncIterator[tuple[RunningServer, aio.Channel]]:
    """A server of one unary method, and a channel that outlives it."""

    async def echo(request: bytes, context: Any) -> bytes:
        return request

    chosen = handler or grpc.unary_unary_rpc_method_handler(echo)

    def register(server: aio.Server) -> None:
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Method": chosen}),)
        )

    async with serve(
        settings,
        services=[SERVICE],
        register=register,
        interceptors=(),
        draining=draining or asyncio.Event(),
    ) as server:
        channel = aio.insecure_channel(f"127.0.0.1:{server.port}")
        try:
            yield server, channel
        finally:
            _channels.append(channel)


_channels: list[aio.Channel] = []


@pytest.fixture(autouse=True)
async def _close_channels() -> AsyncIterator[None]:
    yield
    while _channels:
        await _channels.pop().close()


async def health(channel: aio.Channel, service: str) -> int:
    stub = health_of(channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(response.status)


class TestServing:
    async def test_it_answers_at_the_port_it_tells(self, tmp_path: Path) -> None:
        async with running(settings(tmp_path)) as (_, channel):
            assert await unary_unary(channel, METHOD)(b"hi") == b"hi"

    async def test_of_thousands_of_calls_at_one_moment_none_is_cancelled(
        self, tmp_path: Path
    ) -> None:
        async with running(settings(tmp_path)) as (_, channel):
            ask = unary_unary(channel, METHOD)
            await ask(b"hi")

            answers = await asyncio.gather(*(ask(b"hi") for _ in range(5000)))

            assert answers == [b"hi"] * 5000

    @pytest.mark.parametrize("service", ["", SERVICE])
    async def test_it_is_healthy_as_a_whole_and_by_service(
        self, tmp_path: Path, service: str
    ) -> None:
        async with running(settings(tmp_path)) as (_, channel):
            assert await health(channel, service) == SERVING

    @pytest.mark.parametrize("allowed", [True, False])
    async def test_reflection_lists_the_services_where_it_is_allowed(
        self, tmp_path: Path, allowed: bool
    ) -> None:
        async with running(settings(tmp_path, reflection=allowed)) as (_, channel):
            reflect = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )
            call = reflect(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            if not allowed:
                with pytest.raises(aio.AioRpcError) as caught:
                    await call.read()
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
                return
            listed = (await read(call)).list_services_response.service

        assert {each.name for each in listed} == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }

    async def test_a_message_over_the_limit_is_refused(self, tmp_path: Path) -> None:
        small = settings(tmp_path, max_message_bytes=1024 * 1024)
        async with running(small) as (_, channel):
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(bytes(1024 * 1024 + 100))

        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


class TestListening:
    async def test_an_address_in_use_is_told_in_one_line(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ListenError) as caught:
                async with running(settings(tmp_path, listen=address)):
                    pass

        assert str(caught.value) == f"cannot listen on {address}: Address already in use"

    async def test_an_address_of_another_machine_is_told_too(self, tmp_path: Path) -> None:
        with pytest.raises(ListenError, match=r"^cannot listen on 192\.0\.2\.1:0: Cannot assign"):
            async with running(settings(tmp_path, listen="192.0.2.1:0")):
                pass


class TestEnd:
    async def test_health_goes_first_then_streams_then_calls(self, tmp_path: Path) -> None:
        steps: list[str] = []
        inside, leave, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()
        draining = asyncio.Event()

        async def call(request: bytes, context: Any) -> bytes:
            inside.set()
            await finish.wait()
            steps.append("call goes on")
            return b"done"

        async def run() -> None:
            drain = settings(tmp_path, drain_seconds=0.2)
            handler: RawHandler = grpc.unary_unary_rpc_method_handler(call)
            async with running(drain, handler, draining=draining) as (_, channel):
                started.set_result(channel)
                await leave.wait()
            steps.append("stopped")

        started: asyncio.Future[aio.Channel] = asyncio.Future()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(run())
            channel = await started
            answer = unary_unary(channel, METHOD)(b"")
            watch = health_of(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
            assert (await read(watch)).status == SERVING
            await inside.wait()
            leave.set()
            assert (await read(watch)).status == NOT_SERVING
            assert not draining.is_set()
            await draining.wait()
            finish.set()
            assert await watch.read() is aio.EOF
            assert await answer == b"done"

        assert steps == ["call goes on", "stopped"]

    async def test_while_it_drains_calls_are_still_taken(self, tmp_path: Path) -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            leave = asyncio.Event()
            started: asyncio.Future[aio.Channel] = asyncio.Future()

            async def run() -> None:
                async with running(settings(tmp_path, drain_seconds=0.5)) as (_, channel):
                    started.set_result(channel)
                    await leave.wait()

            group.create_task(run())
            channel = await started
            leave.set()
            while await health(channel, "") != NOT_SERVING:
                pass

            assert await unary_unary(channel, METHOD)(b"hi") == b"hi"

    @pytest.mark.parametrize("watched", ["", SERVICE, "nobody.Knows"])
    async def test_a_health_watch_does_not_hold_it_up(self, tmp_path: Path, watched: str) -> None:
        started = asyncio.get_running_loop().time()
        async with running(settings(tmp_path, grace_seconds=30)) as (_, channel):
            stub = health_of(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=watched))
            assert (await read(watch)).status in {SERVING, UNKNOWN}

        assert asyncio.get_running_loop().time() - started < 10

    async def test_what_does_not_end_by_itself_is_ended_after_the_grace(
        self, tmp_path: Path
    ) -> None:
        inside = asyncio.Event()

        async def wait(request: bytes, context: Any) -> bytes:
            inside.set()
            await asyncio.Event().wait()
            return b""

        handler: RawHandler = grpc.unary_unary_rpc_method_handler(wait)
        async with running(settings(tmp_path, grace_seconds=0.1), handler) as (_, channel):
            call = unary_unary(channel, METHOD)(b"")
            await asyncio.wait_for(inside.wait(), 10)

        assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.UNAVAILABLE

    @pytest.mark.parametrize("times", [1, 2, 3])
    async def test_it_stops_however_often_it_is_cancelled(self, tmp_path: Path, times: int) -> None:
        running_: asyncio.Future[tuple[RunningServer, aio.Channel]] = asyncio.Future()
        draining = asyncio.Event()

        async def run() -> None:
            drain = settings(tmp_path, drain_seconds=30, grace_seconds=0.1)
            async with running(drain, draining=draining) as started:
                running_.set_result(started)
                await asyncio.Event().wait()

        async with asyncio.timeout(20):
            task = asyncio.create_task(run())
            server, channel = await running_
            task.cancel()
            while await health(channel, "") != NOT_SERVING:
                pass
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task

        assert draining.is_set()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)

    async def test_an_error_inside_is_the_one_that_comes_out(self, tmp_path: Path) -> None:
        async def fail(what: Callable[[], object]) -> None:
            async with running(settings(tmp_path)):
                what()

        with pytest.raises(ZeroDivisionError):
            await fail(lambda: 1 / 0)
