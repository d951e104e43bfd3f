"""Who may call."""

from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc import aio

from services.common.clock import now
from services.common.errors import UnauthenticatedError
from services.common.identity import Identity, IdentitySigner, IdentityVerifier, Role
from services.common.interceptors.authentication import (
    IDENTITY_KEY,
    AuthenticationInterceptor,
    current_identity,
)
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.status import failure_of
from tests.calls import unary_unary
from tests.common.serving import METHOD, SERVICE, serving

KEY = Ed25519PrivateKey.generate()
ADA = Identity("acme", "ada", frozenset({Role.VIEWER}))
BOB = Identity("evil", "bob")
SIGNER = IdentitySigner("gateway", KEY, audience="agent", clock=now)


async def tell(request: bytes, context: Any) -> bytes:
    identity = current_identity()
    return f"{identity.tenant}/{identity.user_id}".encode()


def chain() -> tuple[aio.ServerInterceptor, ...]:
    verifier = IdentityVerifier("agent", {"gateway": KEY.public_key()}, clock=now)
    return ErrorStatusInterceptor("test.chatmind"), AuthenticationInterceptor(verifier)


class TestAuthentication:
    async def test_each_call_has_the_identity_of_its_token(self) -> None:
        async with serving(tell, *chain()) as channel:
            call = unary_unary(channel, METHOD)
            told = [
                await call(b"", metadata=((IDENTITY_KEY, SIGNER.token(identity)),))
                for identity in (ADA, BOB, ADA)
            ]

        assert told == [b"acme/ada", b"evil/bob", b"acme/ada"]

    @pytest.mark.parametrize(
        "metadata",
        [
            (),
            ((IDENTITY_KEY, ""),),
            ((IDENTITY_KEY, "nonsense"),),
            (("authorization", f"Bearer {SIGNER.token(ADA)}"),),
            ((f"{IDENTITY_KEY}-bin", SIGNER.token(ADA).encode()),),
        ],
        ids=["none", "empty", "nonsense", "elsewhere", "binary"],
    )
    async def test_without_one_that_holds_nothing_is_done(
        self, metadata: tuple[tuple[str, str | bytes], ...]
    ) -> None:
        reached = []

        async def behave(request: bytes, context: Any) -> bytes:
            reached.append(request)
            return request

        async with serving(behave, *chain()) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"", metadata=metadata)

        assert failure_of(caught.value).reason == "UNAUTHENTICATED"
        assert reached == []

    async def test_a_call_does_not_inherit_the_identity_of_the_one_before(self) -> None:
        async with serving(tell, *chain()) as channel:
            call = unary_unary(channel, METHOD)
            await call(b"", metadata=((IDENTITY_KEY, SIGNER.token(ADA)),))
            with pytest.raises(aio.AioRpcError) as caught:
                await call(b"")

        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    async def test_a_token_of_yesterday_is_refused(self) -> None:
        long_ago = IdentitySigner(
            "gateway", KEY, audience="agent", clock=lambda: datetime(2020, 1, 1, tzinfo=UTC)
        )
        async with serving(tell, *chain()) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(
                    b"", metadata=((IDENTITY_KEY, long_ago.token(ADA)),)
                )

        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    @pytest.mark.parametrize(
        "service", ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]
    )
    async def test_health_and_reflection_are_open_but_nobody(self, service: str) -> None:
        async with serving(tell, *chain(), service=service) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, f"/{service}/Method")(b"")

        assert caught.value.details() == "No identity came with the call."

    @pytest.mark.parametrize("service", ["grpc.health.v1.Healthy", "x.grpc.reflection.v1", SERVICE])
    async def test_what_is_named_alike_is_not_open(self, service: str) -> None:
        async with serving(tell, *chain(), service=service) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, f"/{service}/Method")(b"")

        assert caught.value.details() == "No identity token came with the call."

    def test_outside_of_a_call_there_is_nobody(self) -> None:
        with pytest.raises(UnauthenticatedError):
            current_identity()
