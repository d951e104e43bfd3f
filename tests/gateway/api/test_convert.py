"""The contract's messages and the gateway's own values; events stand in the clients' tests."""

from datetime import UTC, datetime

import pytest
from chatmind.gateway.v1 import access_pb2, access_service_pb2
from chatmind.gateway.v1 import gateway_service_pb2 as pb

from services.common.identity import Role
from services.gateway.api import convert
from services.gateway.domain.messages import Heartbeat, NewMessage, WhenBusy
from services.gateway.domain.models import ApiKey, KeyId, NewKey, Scope

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)


class TestNewMessage:
    def test_text_that_cannot_be_kept_is_cleaned(self) -> None:
        assert convert.to_new_message(
            pb.SendMessageRequest(text="a\0b", request_id="7")
        ) == NewMessage("a\ufffdb", "7", WhenBusy.ENQUEUE)

    @pytest.mark.parametrize("name", ["ENQUEUE", "REJECT", "INTERRUPT", "ROLLBACK"])
    def test_words_keep_their_meaning(self, name: str) -> None:
        request = pb.SendMessageRequest(when_busy=pb.WhenBusy.Value(f"WHEN_BUSY_{name}"))

        assert convert.to_new_message(request).when_busy is WhenBusy[name]


class TestStreamed:
    def test_a_heartbeat_says_how_far_all_was_sent(self) -> None:
        response = convert.from_event(Heartbeat(NOON), 7)

        assert response.WhichOneof("event") == "heartbeat"
        assert response.heartbeat.time.ToDatetime(UTC) == NOON
        assert response.through_sequence == 7


class TestNewKey:
    def test_what_is_left_out_has_its_default(self) -> None:
        request = access_service_pb2.CreateApiKeyRequest(user_id="ada")

        assert convert.to_new_key(request) == NewKey("", "", "ada", frozenset({Role.MEMBER}))

    def test_every_field_is_read(self) -> None:
        request = access_service_pb2.CreateApiKeyRequest(
            display_name="laptop\0",
            tenant="acme",
            user_id="ada",
            roles=[access_pb2.ROLE_ADMIN, access_pb2.ROLE_VIEWER],
            scopes=[access_pb2.SCOPE_READ, access_pb2.SCOPE_ADMIN],
        )
        request.expire_time.FromDatetime(NOON)

        assert convert.to_new_key(request) == NewKey(
            "laptop\ufffd",
            "acme",
            "ada",
            frozenset({Role.ADMIN, Role.VIEWER}),
            frozenset({Scope.READ, Scope.ADMIN}),
            NOON,
        )


class TestApiKey:
    def test_scopes_are_what_the_key_may_be_used_for(self) -> None:
        key = ApiKey(
            id=KeyId("7"),
            display_name="laptop",
            tenant="acme",
            user_id="ada",
            roles=frozenset({Role.VIEWER}),
            narrowed_to=frozenset(),
            create_time=NOON,
            revoke_time=NOON,
        )

        converted = convert.from_api_key(key)

        assert list(converted.roles) == [access_pb2.ROLE_VIEWER]
        assert list(converted.scopes) == [access_pb2.SCOPE_READ]
        assert converted.create_time.ToDatetime(UTC) == NOON
        assert converted.revoke_time == converted.create_time
        assert not converted.HasField("expire_time")

    def test_every_role_and_scope_has_its_word(self) -> None:
        for role in Role:
            request = access_service_pb2.CreateApiKeyRequest(
                roles=[access_pb2.Role.Value(f"ROLE_{role.name}")]
            )
            assert convert.to_new_key(request).roles == {role}
        for scope in Scope:
            request = access_service_pb2.CreateApiKeyRequest(
                scopes=[access_pb2.Scope.Value(f"SCOPE_{scope.name}")]
            )
            assert convert.to_new_key(request).narrowed_to == {scope}
