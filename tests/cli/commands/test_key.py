"""`chatmind key`."""

import json

import pytest
from chatmind.gateway.v1 import access_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from tests.cli.conftest import Chatmind
from tests.cli.gateway import State


class TestAdd:
    def test_the_secret_alone_is_printed(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("key", "add", "ada", "--role", "Admin", "--role", "member")

        assert (result.exit_code, result.stdout, result.stderr) == (0, "cm_secret\n", "")
        assert state.keys[0].roles == [access_pb2.ROLE_ADMIN, access_pb2.ROLE_MEMBER]

    def test_for_scripts_the_key_comes_with_it(self, chatmind: Chatmind) -> None:
        made = json.loads(chatmind("key", "add", "ada", "--name", "laptop", "--json").stdout)

        assert made["secret"] == "cm_secret"
        assert made["api_key"]["display_name"] == "laptop"

    @pytest.mark.parametrize("role", ["root", "", "unspecified"])
    def test_a_role_that_is_none_is_a_wrong_use(
        self, chatmind: Chatmind, state: State, role: str
    ) -> None:
        result = chatmind("key", "add", "ada", "--role", role)

        assert (result.exit_code, result.stdout, state.keys) == (2, "", [])
        assert "viewer, member, admin, operator" in result.stderr


class TestList:
    def test_it_tells_which_keys_still_work(self, chatmind: Chatmind, state: State) -> None:
        past, future = Timestamp(seconds=1), Timestamp(seconds=2**32)
        state.keys = [
            access_pb2.ApiKey(id="k1", user_id="ada", roles=[access_pb2.ROLE_ADMIN]),
            access_pb2.ApiKey(id="k2", expire_time=future),
            access_pb2.ApiKey(id="k3", expire_time=past),
            access_pb2.ApiKey(id="k4", expire_time=past, revoke_time=past),
        ]
        lines = chatmind("key", "list").stdout.splitlines()[1:]

        assert [(line.split()[0], line.split()[-1]) for line in lines] == [
            ("k1", "valid"),
            ("k2", "valid"),
            ("k3", "expired"),
            ("k4", "revoked"),
        ]

    def test_a_role_of_a_newer_release_is_its_number(
        self, chatmind: Chatmind, state: State
    ) -> None:
        unknown = access_pb2.Role.ValueType(77)
        state.keys = [access_pb2.ApiKey(id="k1", roles=[access_pb2.ROLE_VIEWER, unknown])]

        assert "viewer, 77" in chatmind("key", "list").stdout


class TestRevoke:
    def test_it_is_ended(self, chatmind: Chatmind, state: State) -> None:
        state.keys = [access_pb2.ApiKey(id="k1")]
        result = chatmind("key", "revoke", "k1")

        assert result.stdout == "revoked k1\n"
        assert state.keys[0].HasField("revoke_time")

    def test_one_that_is_not_there_is_told(self, chatmind: Chatmind) -> None:
        result = chatmind("key", "revoke", "k9")

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: No such key. (NOT_FOUND)\n"
