"""Keys made, listed and ended over gRPC, kept in a real database."""

import time
import uuid
from typing import Any

import grpc
import pytest
from chatmind.gateway.v1 import access_pb2
from chatmind.gateway.v1 import access_service_pb2 as pb
from grpc import aio

from services.common.status import RpcFailure, failure_of
from tests.gateway.installation import Installation, bearer


async def failure(call: Any) -> RpcFailure:
    """What a call fails with."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return failure_of(caught.value)


class TestGetIdentity:
    async def test_it_tells_whom_the_key_stands_for(self, gateway: Installation) -> None:
        made, secret = await gateway.make_key("ada", tenant="acme", display_name="Ada's laptop")

        answer = await gateway.access.GetIdentity(pb.GetIdentityRequest(), metadata=bearer(secret))

        key = answer.api_key
        assert key == made
        assert (key.tenant, key.user_id, key.display_name) == ("acme", "ada", "Ada's laptop")
        assert list(key.roles) == [access_pb2.ROLE_MEMBER]
        assert list(key.scopes) == [
            access_pb2.SCOPE_READ,
            access_pb2.SCOPE_WRITE,
            access_pb2.SCOPE_CHAT,
        ]
        assert not key.HasField("expire_time")


class TestCreateApiKey:
    async def test_the_key_expires_when_asked_to(self, gateway: Installation) -> None:
        later = int(time.time()) + 3600

        made, _ = await gateway.make_key("ada", expire_time={"seconds": later})

        assert made.expire_time.seconds == later

    async def test_a_refused_field_is_named(self, gateway: Installation) -> None:
        refused: list[tuple[str, dict[str, Any]]] = [
            ("user_id", {"user_id": ""}),
            ("user_id", {"user_id": "white space"}),
            ("tenant", {"user_id": "ada", "tenant": "No!"}),
            ("display_name", {"user_id": "ada", "display_name": "x" * 201}),
            ("roles[0]", {"user_id": "ada", "roles": [0]}),
            ("expire_time", {"user_id": "ada", "expire_time": {"seconds": 1}}),
            ("scopes", {"user_id": "ada", "roles": [1], "scopes": [4]}),
        ]
        for field, fields in refused:
            failed = await failure(gateway.make_key(**fields))

            assert failed.code is grpc.StatusCode.INVALID_ARGUMENT
            assert [field] == [violation.field for violation in failed.violations]

    async def test_text_that_cannot_be_kept_is_cleaned(self, gateway: Installation) -> None:
        made, _ = await gateway.make_key("ada", display_name="a\0b")

        assert made.display_name == "a\ufffdb"


class TestListApiKeys:
    async def test_pages_hold_each_key_once_oldest_first(self, gateway: Installation) -> None:
        tenant = f"tenant-{uuid.uuid4().hex}"
        admin, secret = await gateway.make_key("ada", tenant=tenant, roles=[access_pb2.ROLE_ADMIN])
        made = [(await gateway.make_key("bob", tenant=tenant))[0].id for _ in range(4)]
        listed: list[str] = []
        token = ""
        while token or not listed:
            request = pb.ListApiKeysRequest(page_size=2, page_token=token)
            page = await gateway.access.ListApiKeys(request, metadata=bearer(secret))
            listed += [key.id for key in page.api_keys]
            token = page.next_page_token

        assert listed == [admin.id, *made]

    async def test_an_operator_sees_every_tenant(self, gateway: Installation) -> None:
        made, _ = await gateway.make_key("ada", tenant=f"tenant-{uuid.uuid4().hex}")
        listed: list[str] = []
        token = ""
        while token or not listed:
            request = pb.ListApiKeysRequest(page_size=200, page_token=token)
            page = await gateway.access.ListApiKeys(request, metadata=bearer(gateway.key))
            listed += [key.id for key in page.api_keys]
            token = page.next_page_token

        assert made.id in listed

    async def test_a_token_is_worth_nothing_to_another(self, gateway: Installation) -> None:
        await gateway.make_key("one")
        request = pb.ListApiKeysRequest(page_size=1)
        page = await gateway.access.ListApiKeys(request, metadata=bearer(gateway.key))
        _, other = await gateway.make_key("ada", tenant="acme", roles=[access_pb2.ROLE_ADMIN])

        stolen = pb.ListApiKeysRequest(page_token=page.next_page_token)
        failed = await failure(gateway.access.ListApiKeys(stolen, metadata=bearer(other)))

        assert failed.reason == "INVALID_PAGE_TOKEN"

    async def test_an_admin_sees_the_own_tenant_only(self, gateway: Installation) -> None:
        tenant = f"tenant-{uuid.uuid4().hex}"
        mine, secret = await gateway.make_key("ada", tenant=tenant, roles=[access_pb2.ROLE_ADMIN])

        page = await gateway.access.ListApiKeys(pb.ListApiKeysRequest(), metadata=bearer(secret))

        assert list(page.api_keys) == [mine]


class TestRevokeApiKey:
    async def test_it_can_be_repeated_and_keeps_its_time(self, gateway: Installation) -> None:
        made, secret = await gateway.make_key("ada")
        request = pb.RevokeApiKeyRequest(api_key_id=made.id)

        first = await gateway.access.RevokeApiKey(request, metadata=bearer(gateway.key))
        second = await gateway.access.RevokeApiKey(request, metadata=bearer(gateway.key))
        identify = gateway.access.GetIdentity(pb.GetIdentityRequest(), metadata=bearer(secret))

        assert first.api_key.HasField("revoke_time")
        assert first == second
        assert (await failure(identify)).code is grpc.StatusCode.UNAUTHENTICATED

    async def test_an_id_that_cannot_be_kept_is_not_found(self, gateway: Installation) -> None:
        request = pb.RevokeApiKeyRequest(api_key_id="a\0b")

        failed = await failure(gateway.access.RevokeApiKey(request, metadata=bearer(gateway.key)))

        assert failed.code is grpc.StatusCode.NOT_FOUND

    async def test_another_tenants_key_is_as_good_as_absent(self, gateway: Installation) -> None:
        theirs, _ = await gateway.make_key("someone", tenant="other")
        _, admin = await gateway.make_key("ada", tenant="acme", roles=[access_pb2.ROLE_ADMIN])
        nobodys = "0" * 32

        failures = [
            await failure(
                gateway.access.RevokeApiKey(
                    pb.RevokeApiKeyRequest(api_key_id=key_id), metadata=bearer(admin)
                )
            )
            for key_id in (theirs.id, nobodys)
        ]

        assert [failed.code for failed in failures] == [grpc.StatusCode.NOT_FOUND] * 2
        assert [failed.message.replace(failed.metadata["id"], "ID") for failed in failures] == [
            "No API key ID."
        ] * 2
