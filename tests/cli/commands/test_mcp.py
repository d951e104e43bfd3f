"""`chatmind mcp`."""

import json

import pytest
from chatmind.agent.v1 import agent_pb2, mcp_pb2

from tests.cli.conftest import Chatmind
from tests.cli.gateway import State

Consent = mcp_pb2.McpTool


def tool(name: str, consent: mcp_pb2.McpTool.Consent.ValueType) -> mcp_pb2.McpTool:
    return mcp_pb2.McpTool(
        name=f"files_{name}",
        original_name=name,
        description=f"Does\n{name}.",
        digest=name[0] * 64,
        consent=consent,
    )


@pytest.fixture(autouse=True)
def servers(state: State) -> None:
    state.agents = [agent_pb2.Agent(id="id-Guide", display_name="Guide")]
    state.mcp_servers = [
        mcp_pb2.McpServer(
            name="files",
            transport=mcp_pb2.McpServer.TRANSPORT_STDIO,
            state=mcp_pb2.McpServer.STATE_CONNECTED,
            protocol_version="2026-07-28",
            bound=True,
            tools=[
                tool("approved", Consent.CONSENT_APPROVED),
                tool("changed", Consent.CONSENT_CHANGED),
                tool("new", Consent.CONSENT_NEW),
            ],
        ),
        mcp_pb2.McpServer(
            name="web",
            transport=mcp_pb2.McpServer.TRANSPORT_HTTP,
            state=mcp_pb2.McpServer.STATE_UNAVAILABLE,
            error="it cannot be reached",
        ),
    ]


class TestServers:
    def test_each_is_told_with_its_state(self, chatmind: Chatmind) -> None:
        head, files, web = chatmind("mcp", "servers").stdout.splitlines()

        assert head.split() == ["NAME", "TRANSPORT", "STATE", "PROTOCOL", "TOOLS", "ERROR"]
        assert files.split() == ["files", "stdio", "connected", "2026-07-28", "3"]
        assert web.split() == [
            "web",
            "http",
            "unavailable",
            "0",
            *["it", "cannot", "be", "reached"],
        ]

    def test_for_scripts_each_is_an_object(self, chatmind: Chatmind) -> None:
        lines = chatmind("mcp", "servers", "--json").stdout.splitlines()

        assert [json.loads(line)["name"] for line in lines] == ["files", "web"]


class TestTools:
    def test_consent_is_told(self, chatmind: Chatmind) -> None:
        _, *lines = chatmind("mcp", "tools", "--agent", "Guide").stdout.splitlines()

        assert [line.split()[:2] for line in lines] == [
            ["files_approved", "approved"],
            ["files_changed", "changed"],
            ["files_new", "new"],
        ]

    def test_those_of_one_server_can_be_listed(self, chatmind: Chatmind) -> None:
        assert len(chatmind("mcp", "tools", "web").stdout.splitlines()) <= 1


class TestApprove:
    def test_what_waits_is_shown_and_approved_as_it_was_seen(
        self, chatmind: Chatmind, state: State
    ) -> None:
        result = chatmind("mcp", "approve", "Guide", "files", stdin="y\n")

        assert "files_changed (changed): Does changed." in result.stderr
        assert result.stdout == "approved 2 tools\n"
        (asked,) = state.approved
        assert (asked.agent_id, asked.server) == ("id-Guide", "files")
        assert list(asked.digests) == ["c" * 64, "n" * 64]

    def test_who_says_no_approves_nothing(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("mcp", "approve", "Guide", "files", stdin="n\n")

        assert (result.exit_code, state.approved) == (1, [])

    def test_one_tool_can_be_named(self, chatmind: Chatmind, state: State) -> None:
        told = ("--tool", "files_new", "--yes")
        chatmind("mcp", "approve", "Guide", "files", *told)

        assert list(state.approved[0].digests) == ["n" * 64]

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("Guide", "nope"), "no MCP server is called 'nope'"),
            (("Guide", "web"), "'Guide' may not use 'web'"),
            (("Guide", "files", "--tool", "files_approved"), "do not wait for approval"),
        ],
    )
    def test_what_makes_no_sense_is_told(
        self, chatmind: Chatmind, state: State, arguments: tuple[str, ...], told: str
    ) -> None:
        result = chatmind("mcp", "approve", *arguments)

        assert (result.exit_code, state.approved) == (1, [])
        assert told in result.stderr

    def test_a_server_that_is_down_is_told(self, chatmind: Chatmind, state: State) -> None:
        state.mcp_servers[1].bound = True

        assert "it cannot be reached" in chatmind("mcp", "approve", "Guide", "web").stderr

    def test_without_anything_to_approve_that_is_said(
        self, chatmind: Chatmind, state: State
    ) -> None:
        del state.mcp_servers[0].tools[1:]

        result = chatmind("mcp", "approve", "Guide", "files")

        assert (result.exit_code, state.approved) == (0, [])
        assert "nothing waits" in result.stderr
