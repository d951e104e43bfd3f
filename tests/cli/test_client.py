"""The gateway as the commands see it."""

import socket
import time
from pathlib import Path

import grpc
import pytest
from chatmind.agent.v1 import agent_pb2, agent_service_pb2
from chatmind.gateway.v1 import gateway_service_pb2

from cli.client import Gateway, connect, events, failed_call, listed, read_key
from cli.errors import CommandError
from services.common.status import failure_of
from tests.cli.gateway import KEY, Hold, State, heartbeat

LIST = agent_service_pb2.ListAgentsRequest


class TestConnect:
    @pytest.mark.parametrize(("key", "reason"), [(KEY, ""), ("other", "UNAUTHENTICATED")])
    def test_the_key_goes_with_every_call(self, address: str, key: str, reason: str) -> None:
        with connect(address, key) as gateway:
            try:
                gateway.agents.ListAgents(LIST(), timeout=10)
                failure = ""
            except grpc.RpcError as error:
                failure = failure_of(failed_call(error)).reason

        assert failure == reason

    def test_a_gateway_on_this_machine_is_reached_without_a_proxy(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        with connect(address, KEY) as gateway:
            assert not gateway.agents.ListAgents(LIST(), timeout=10).agents

    @pytest.mark.parametrize("listening", [False, True], ids=["refused", "silent"])
    def test_where_nobody_answers_is_known_within_seconds(
        self, monkeypatch: pytest.MonkeyPatch, listening: bool
    ) -> None:
        """A silent address takes the connection and then says nothing."""
        monkeypatch.setattr("cli.client._CONNECT_MILLISECONDS", 500)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            if not listening:
                server.close()
            started = time.monotonic()
            with connect(address, KEY) as gateway, pytest.raises(grpc.RpcError) as caught:
                gateway.agents.ListAgents(LIST(), timeout=30)

        assert failed_call(caught.value).code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - started < 5


class TestReadKey:
    @pytest.fixture(autouse=True)
    def nothing_set(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("CHATMIND_API_KEY", raising=False)
        monkeypatch.setenv("CHATMIND_DATA_DIR", str(tmp_path / "data"))

    def test_a_named_file_wins_over_all(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CHATMIND_API_KEY", "from-environment")
        (tmp_path / "key").write_text("from-file\n", encoding="ascii")

        assert read_key(tmp_path / "key") == "from-file"

    def test_the_environment_wins_over_the_local_key(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CHATMIND_API_KEY", " from-environment \n")
        self.write_local(tmp_path, b"local")

        assert read_key(None) == "from-environment"

    def test_the_local_admin_key_is_the_last_resort(self, tmp_path: Path) -> None:
        self.write_local(tmp_path, b"local\n")

        assert read_key(None) == "local"

    def test_without_any_the_ways_to_give_one_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError) as caught:
            read_key(None)

        told = str(caught.value)
        assert told.startswith(f"no API key: {tmp_path}/data/admin.key cannot be read (No such")
        assert all(way in told for way in ("`chatmind up`", "CHATMIND_API_KEY", "--key-file"))

    @pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\nb", b"\xff\xfe", b"a\x00b"])
    def test_what_is_no_key_is_not_sent_and_not_shown(self, tmp_path: Path, content: bytes) -> None:
        self.write_local(tmp_path, content)
        with pytest.raises(CommandError) as caught:
            read_key(None)

        assert str(caught.value) == f"{tmp_path}/data/admin.key holds no API key"

    def write_local(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/admin.key").write_bytes(content)


class TestListed:
    def test_the_items_of_all_pages_are_listed(self, gateway: Gateway, state: State) -> None:
        state.agents = [agent_pb2.Agent(id=str(number)) for number in range(5)]
        agents = listed(gateway.agents.ListAgents, LIST(), lambda page: page.agents)

        assert [agent.id for agent in agents] == ["0", "1", "2", "3", "4"]

    def test_pages_are_requested_as_they_are_needed(self, gateway: Gateway, state: State) -> None:
        state.agents = [agent_pb2.Agent(id=str(number)) for number in range(5)]
        request = LIST()
        agents = listed(gateway.agents.ListAgents, request, lambda page: page.agents)
        first = next(agents)

        assert (first.id, request.page_token) == ("0", "")

    def test_an_empty_list_has_no_items(self, gateway: Gateway) -> None:
        assert list(listed(gateway.agents.ListAgents, LIST(), lambda page: page.agents)) == []


class TestEvents:
    def test_leaving_the_iteration_ends_the_call(self, gateway: Gateway, state: State) -> None:
        state.streams.append([heartbeat(1), Hold()])
        call = gateway.messages.StreamMessages(gateway_service_pb2.StreamMessagesRequest())
        for _ in events(call):
            break

        assert call.code() is grpc.StatusCode.CANCELLED
