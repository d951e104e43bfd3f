"""Who is let in, on every method there is."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from chatmind.gateway.v1 import access_pb2, access_service_pb2
from grpc import aio
from grpc_health.v1 import health_pb2

from services.common.errors import UnauthenticatedError
from services.common.identity import Role
from services.common.status import RpcFailure, failure_of
from services.gateway.api.authentication import credential_of
from services.gateway.api.methods import Method, methods
from services.gateway.domain.keys import compose, key_id_of
from services.gateway.domain.models import KeyId, Scope
from services.gateway.domain.policy import scope_of
from tests.calls import health_of, stream_unary, unary_stream, unary_unary
from tests.gateway.installation import (
    ENOUGH,
    Installation,
    bearer,
    eventually,
    open_installation,
)

Metadata = Sequence[tuple[str, str]]
UNSERVED = (
    "/chatmind.knowledge.v1.MemoryService/AddMemory",
    "/chatmind.agent.v1.ReviewService/StartReview",
    "/chatmind.embedding.v1.EmbeddingService/Embed",
    "/chatmind.agent.v1.AgentService/NoSuchMethod",
    "/no.such.Service/Method",
)


@pytest.fixture
async def patient_gateway(tmp_path: Path, keys_database: str) -> AsyncIterator[Installation]:
    """One that endures many bad keys."""
    async with open_installation(tmp_path, keys_database, bad_keys_burst=1000) as installation:
        yield installation


async def outcome(channel: aio.Channel, method: Method, metadata: Metadata) -> RpcFailure | None:
    """What a call with an empty request fails with; None where it does not."""
    try:
        async with asyncio.timeout(ENOUGH):
            if method.streams_out:
                watch = unary_stream(channel, method.path)(b"", metadata=metadata)
                await watch.read()
                watch.cancel()
            elif method.streams_in:
                await stream_unary(channel, method.path)(iter([b""]), metadata=metadata)
            else:
                await unary_unary(channel, method.path)(b"", metadata=metadata)
    except aio.AioRpcError as error:
        return failure_of(error)
    return None


def refused(failed: RpcFailure | None) -> tuple[str, str]:
    """Code and reason of a failure that came from the gateway itself."""
    assert failed is not None
    return failed.code.name, failed.reason


class TestEveryMethod:
    async def test_none_is_answered_without_a_key_that_holds(
        self, patient_gateway: Installation
    ) -> None:
        gateway = patient_gateway
        revoked, revoked_secret = await gateway.make_key("gone")
        await gateway.access.RevokeApiKey(
            access_service_pb2.RevokeApiKeyRequest(api_key_id=revoked.id),
            metadata=bearer(gateway.key),
        )
        soon = {"expire_time": {"nanos": 1, "seconds": int(time.time()) + 1}}
        _, expired_secret = await gateway.make_key("late", **soon)
        await asyncio.sleep(1.1)
        bad: dict[str, Metadata] = {
            "no key": (),
            "nonsense": bearer("nonsense"),
            "empty": bearer(""),
            "another scheme": (("authorization", f"Basic {gateway.key}"),),
            "unknown key": bearer(another_key()),
            "another's secret": bearer(mixed(gateway.key, revoked_secret)),
            "expired": bearer(expired_secret),
            "revoked": bearer(revoked_secret),
            "identity from outside": (("x-chatmind-identity", "eyJhbGciOiJub25lIn0.e30."),),
        }
        gateway.agent.seen.clear()

        found = {
            (method.path, name): refused(await outcome(gateway.channel, method, metadata))
            for method in methods()
            for name, metadata in bad.items()
        }

        assert {("UNAUTHENTICATED", "UNAUTHENTICATED")} == set(found.values()), found
        assert gateway.agent.seen + gateway.knowledge.calls == []

    async def test_none_is_answered_to_a_key_without_its_scope(self, gateway: Installation) -> None:
        for scope in Scope:
            others = [access_pb2.Scope.Value(f"SCOPE_{s.name}") for s in Scope if s is not scope]
            _, secret = await gateway.make_key(
                "narrow", roles=[access_pb2.ROLE_ADMIN], scopes=others
            )
            for method in methods():
                if scope_of(method.path) is scope:
                    failed = await outcome(gateway.channel, method, bearer(secret))

                    assert refused(failed) == ("PERMISSION_DENIED", "PERMISSION_DENIED"), method
                    assert failed is not None
                    assert failed.metadata == {"scope": scope.name}
        assert gateway.agent.seen + gateway.knowledge.calls == []

    async def test_each_is_let_through_with_its_scope_alone(self, gateway: Installation) -> None:
        for scope in Scope:
            only = access_pb2.Scope.Value(f"SCOPE_{scope.name}")
            _, secret = await gateway.make_key(
                "narrow", roles=[access_pb2.ROLE_ADMIN], scopes=[only]
            )
            for method in methods():
                if scope_of(method.path) is scope:
                    failed = await outcome(gateway.channel, method, bearer(secret))

                    denied = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
                    assert failed is None or failed.code not in denied, (method, failed)

    async def test_what_is_not_served_asks_for_a_key_first(self, gateway: Installation) -> None:
        for path in UNSERVED:
            service, name = path.strip("/").split("/")
            method = Method(service, name, streams_in=False, streams_out=False)

            without = await outcome(gateway.channel, method, ())
            with_key = await outcome(gateway.channel, method, bearer(gateway.key))

            assert refused(without) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
            assert refused(with_key) == ("UNIMPLEMENTED", "")

    async def test_health_is_open(self, gateway: Installation) -> None:
        answer = await health_of(gateway.channel).Check(health_pb2.HealthCheckRequest())

        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def another_key() -> str:
    """A well-formed key that nobody made."""
    return compose(key_id_of("0190a5b8-0000-7000-8000-000000000000"), bytes(32))


def mixed(one: str, other: str) -> str:
    """The id of one key with another secret, checksum and all."""
    return compose(KeyId(one.split("_")[1]), other.encode()[-32:])


class TestRevocation:
    async def test_a_revoked_key_fails_at_another_gateway_within_seconds(
        self, gateway: Installation, tmp_path: Path, keys_database: str
    ) -> None:
        _, secret = await gateway.make_key("someone")
        identify = access_service_pb2.GetIdentityRequest()
        async with open_installation(tmp_path / "other", keys_database) as other:
            held = await other.access.GetIdentity(identify, metadata=bearer(secret))
            request = access_service_pb2.RevokeApiKeyRequest(api_key_id=held.api_key.id)
            await gateway.access.RevokeApiKey(request, metadata=bearer(gateway.key))

            async def refusal(access: Any) -> str:
                """The reason of the next refusal."""
                while True:
                    try:
                        await access.GetIdentity(identify, metadata=bearer(secret))
                    except aio.AioRpcError as error:
                        return failure_of(error).message
                    await asyncio.sleep(0.02)

            async with asyncio.timeout(5):
                assert [await refusal(each.access) for each in (gateway, other)] == [
                    "The API key has been revoked."
                ] * 2


class TestBadKeys:
    async def test_too_many_from_one_address_are_turned_away_for_a_while(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(
            tmp_path, keys_database, bad_keys_burst=3, bad_keys_per_minute=60
        ) as gateway:
            method = next(iter(methods()))
            failures = [
                await outcome(gateway.channel, method, bearer(another_key())) for _ in range(4)
            ]

            assert [refused(failed)[0] for failed in failures[:3]] == ["UNAUTHENTICATED"] * 3
            assert refused(failures[3]) == ("RESOURCE_EXHAUSTED", "TOO_MANY_FAILURES")
            assert failures[3] is not None
            assert 0 < (failures[3].retry_after or 0) <= 1

    async def test_a_key_that_has_held_before_passes_all_the_same(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(
            tmp_path, keys_database, bad_keys_burst=1, bad_keys_per_minute=0.001
        ) as gateway:
            identify = access_service_pb2.GetIdentityRequest()
            await gateway.access.GetIdentity(identify, metadata=bearer(gateway.key))
            method = next(iter(methods()))
            await outcome(gateway.channel, method, bearer("nonsense"))
            await asyncio.sleep(gateway.settings.key_hold_seconds)

            answer = await gateway.access.GetIdentity(identify, metadata=bearer(gateway.key))

            assert answer.api_key.user_id == "admin"


class TestIdentity:
    async def test_it_comes_from_the_key_and_from_nothing_the_client_says(
        self, gateway: Installation
    ) -> None:
        _, secret = await gateway.make_key("someone", tenant="acme", roles=[access_pb2.ROLE_VIEWER])
        said = (
            ("x-chatmind-identity", "whatever"),
            ("x-chatmind-tenant", "default"),
            ("x-request-id", "request-7"),
            ("cookie", "session=1"),
        )
        search = unary_unary(gateway.channel, "/chatmind.knowledge.v1.KnowledgeService/Search")

        await search(b"", metadata=(*bearer(secret), *said))

        identity = gateway.knowledge.identities[0]
        assert (identity.tenant, identity.user_id) == ("acme", "someone")
        assert identity.roles == frozenset({Role.VIEWER})
        carried = gateway.knowledge.metadata
        assert carried["x-request-id"] == "request-7"
        assert carried["x-chatmind-identity"] != "whatever"
        assert {"authorization", "x-api-key", "x-chatmind-tenant", "cookie"} & set(carried) == set()

    async def test_secrets_stand_in_no_log_and_no_error(self, gateway: Installation) -> None:
        with structlog.testing.capture_logs() as logs:
            _, secret = await gateway.make_key("someone")
            method = next(iter(methods()))
            good = await outcome(gateway.channel, method, bearer(secret))
            bad = await outcome(gateway.channel, method, bearer(secret + "x"))
            wrong = await outcome(gateway.channel, method, (("authorization", secret),))

        told = repr([logs, good, bad, wrong])
        assert len(logs) >= 4
        assert "call refused" in told
        assert secret.split("_")[2] not in told
        assert gateway.key.split("_")[2] not in told


class TestCredential:
    @pytest.mark.parametrize(
        "metadata",
        [
            {"authorization": "Bearer cm_1"},
            {"authorization": "bearer cm_1"},
            {"authorization": " BEARER   cm_1 "},
            {"x-api-key": "cm_1"},
            {"authorization": "Bearer cm_1", "x-api-key": "cm_2"},
        ],
    )
    def test_it_may_come_either_way(self, metadata: dict[str, str]) -> None:
        assert credential_of(metadata) == "cm_1"

    @pytest.mark.parametrize(
        "metadata", [{}, {"authorization": "Basic cm_1"}, {"authorization": "cm_1"}]
    )
    def test_nothing_else_is_one(self, metadata: dict[str, str]) -> None:
        with pytest.raises(UnauthenticatedError):
            credential_of(metadata)


async def test_streams_end_soon_after_their_key_was_revoked(gateway: Installation) -> None:
    key, secret = await gateway.make_key("someone")
    gateway.knowledge.hold = asyncio.Event()
    watch = unary_stream(gateway.channel, "/chatmind.knowledge.v1.KnowledgeService/WatchDocument")
    call = watch(b"", metadata=bearer(secret))
    for _ in range(3):
        await call.read()
    request = access_service_pb2.RevokeApiKeyRequest(api_key_id=key.id)
    await gateway.access.RevokeApiKey(request, metadata=bearer(gateway.key))

    async with asyncio.timeout(5):
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()

    assert refused(failure_of(caught.value)) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    await eventually(gateway.knowledge.ended.is_set)
