"""Channels to other services."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc import aio

from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner, IdentityVerifier
from services.common.interceptors.authentication import IDENTITY_KEY
from services.common.interceptors.request_id import REQUEST_ID_KEY, RequestIdInterceptor
from services.common.server import RunningServer, serve
from services.common.settings import ServerSettings
from tests.calls import unary_unary
from tests.common.serving import METHOD, SERVICE, Behaviour, RawHandler, serving

LIMIT = 2 * 1024 * 1024
KEY = Ed25519PrivateKey.generate()
ADA = Identity("acme", "ada")


@asynccontextmanager
async def replica(
    behaviour: Behaviour, tmp_path: Path, *, listen: str = "127.0.0.1:0"
) -> AsyncIterator[RunningServer]:
    """A server as services run them, with one unary method."""
    settings = ServerSettings(
        listen=listen, identity_dir=tmp_path, drain_seconds=0.3, grace_seconds=1
    )
    handler: RawHandler = grpc.unary_unary_rpc_method_handler(behaviour)

    def register(server: aio.Server) -> None:
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Method": handler}),)
        )

    async with serve(
        settings,
        services=[SERVICE],
        register=register,
        interceptors=(),
        draining=asyncio.Event(),
    ) as server:
        yield server


async def echo(request: bytes, context: Any) -> bytes:
    return request


class TestOpenChannel:
    async def test_messages_up_to_the_limit_pass_both_ways(self, tmp_path: Path) -> None:
        async with (
            replica(echo, tmp_path) as server,
            open_channel(f"127.0.0.1:{server.port}", max_message_bytes=LIMIT) as channel,
        ):
            call = unary_unary(channel, METHOD)

            assert len(await call(bytes(LIMIT))) == LIMIT
            with pytest.raises(aio.AioRpcError) as caught:
                await call(bytes(LIMIT + 1))

        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    @pytest.mark.parametrize(("idempotent", "expected"), [(True, b"3"), (False, None)])
    async def test_idempotent_methods_alone_are_asked_again(
        self, tmp_path: Path, idempotent: bool, expected: bytes | None
    ) -> None:
        attempts = itertools.count(1)

        async def behave(request: bytes, context: Any) -> bytes:
            if (attempt := next(attempts)) < 3:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return b"%d" % attempt

        methods = [(SERVICE, "Method")] if idempotent else []
        async with (
            replica(behave, tmp_path) as server,
            open_channel(
                f"127.0.0.1:{server.port}", max_message_bytes=LIMIT, idempotent_methods=methods
            ) as channel,
        ):
            try:
                answer = await unary_unary(channel, METHOD)(b"")
            except aio.AioRpcError:
                answer = None

        assert answer == expected

    async def test_a_server_that_knows_no_health_is_taken_for_healthy(self) -> None:
        server = aio.server()
        handler: RawHandler = grpc.unary_unary_rpc_method_handler(echo)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Method": handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with open_channel(f"127.0.0.1:{port}", max_message_bytes=LIMIT) as channel:
            assert await unary_unary(channel, METHOD)(b"hi", timeout=10) == b"hi"
        await server.stop(0)

    async def test_no_proxy_stands_between(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        async with (
            replica(echo, tmp_path) as server,
            open_channel(f"127.0.0.1:{server.port}", max_message_bytes=LIMIT) as channel,
        ):
            assert await unary_unary(channel, METHOD)(b"hi", timeout=10) == b"hi"

    async def test_a_replica_that_drains_gets_no_more_calls(self, tmp_path: Path) -> None:
        """No call fails while one of two replicas stops."""

        def named(name: bytes) -> Behaviour:
            async def behave(request: bytes, context: Any) -> bytes:
                return name

            return behave

        async with replica(named(b"stays"), tmp_path) as stays, AsyncExitStack() as stack:
            going = await stack.enter_async_context(AsyncExitStack())
            goes = await going.enter_async_context(replica(named(b"goes"), tmp_path))
            target = f"ipv4:127.0.0.1:{stays.port},127.0.0.1:{goes.port}"
            channel = await stack.enter_async_context(open_channel(target, max_message_bytes=LIMIT))
            call = unary_unary(channel, METHOD)
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                while {await call(b"") for _ in range(10)} != {b"stays", b"goes"}:
                    pass
                stopping = group.create_task(going.aclose())
                answers = []
                while not stopping.done():
                    answers.append(await call(b""))

        assert set(answers[-10:]) == {b"stays"}


class TestOutgoingCalls:
    async def test_a_call_inward_carries_identity_and_request_id(self) -> None:
        calls = OutgoingCalls(IdentitySigner("gateway", KEY, audience="agent", clock=now))
        verifier = IdentityVerifier("agent", {"gateway": KEY.public_key()}, clock=now)
        sent: dict[str, str] = {}

        async def behave(request: bytes, context: Any) -> bytes:
            sent.update(calls.metadata(ADA))
            return b""

        async with serving(behave, RequestIdInterceptor(lambda: "r1")) as channel:
            await unary_unary(channel, METHOD)(b"")

        assert sent[REQUEST_ID_KEY] == "r1"
        assert verifier.identity(sent[IDENTITY_KEY]) == ADA

    def test_outside_of_a_call_there_is_no_request_id_to_carry(self) -> None:
        calls = OutgoingCalls(IdentitySigner("gateway", KEY, audience="agent", clock=now))

        assert [key for key, _ in calls.metadata(ADA)] == [IDENTITY_KEY]
