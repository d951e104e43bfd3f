import sys
from pathlib import Path

import pytest

from services.agent.clients.mcp.file import (
    HttpSettings,
    McpFileError,
    StdioSettings,
    load_mcp_servers,
)
from services.agent.domain.mcp.models import McpDeclaration, McpTransport

ENVIRON = {"PATH": "/usr/bin:/bin", "TOKEN": "secret-1", "OTHER": "x", "BAD": "a\nb"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mcp.toml"
    path.write_text(text, encoding="utf-8")
    return path


class TestLoad:
    def test_without_a_file_there_are_none(self) -> None:
        assert load_mcp_servers(None, ENVIRON) == ()

    def test_both_kinds_are_read(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            f"""
            [servers.web]
            url = "https://tracker.example.com/mcp"
            headers = {{ X-Team = "support" }}
            header_env = {{ Authorization = "TOKEN" }}
            tools = ["get", "put"]
            read_only = ["get"]
            timeout_seconds = 5
            [servers.files]
            command = "{sys.executable}"
            args = ["-m", "files"]
            env = ["TOKEN"]
            """,
        )

        files, web = load_mcp_servers(path, ENVIRON)

        assert files.declaration == McpDeclaration("files", McpTransport.STDIO)
        assert files.reach == StdioSettings(
            sys.executable, ("-m", "files"), {"PATH": "/usr/bin:/bin", "TOKEN": "secret-1"}
        )
        assert web.declaration == McpDeclaration(
            "web", McpTransport.HTTP, frozenset({"get", "put"}), frozenset({"get"})
        )
        headers = {"X-Team": "support", "Authorization": "secret-1"}
        assert web.reach == HttpSettings("https://tracker.example.com/mcp", headers)
        assert web.timeout_seconds == 5

    def test_a_path_is_meant_from_here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "bin" / "server"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.chdir(tmp_path)

        (server,) = load_mcp_servers(
            write(tmp_path, '[servers.a]\ncommand = "bin/server"'), ENVIRON
        )

        assert isinstance(server.reach, StdioSettings)
        assert server.reach.command == str(program)

    def test_no_secret_shows_when_settings_are_printed(self, tmp_path: Path) -> None:
        path = write(
            tmp_path, '[servers.a]\nurl = "http://x/mcp"\nheader_env = { Authorization = "TOKEN" }'
        )

        assert "secret-1" not in repr(load_mcp_servers(path, ENVIRON))

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("servers = 1", "servers: Input should be a valid dictionary"),
            ("[servers", "is no TOML"),
            ("", "servers: Field required"),
            ("[servers.a]", "servers.a: needs either command or url"),
            ('[servers.a]\nurl="http://x/"\ncommand="sh"', "servers.a: needs either"),
            ('[servers.a_b]\nurl="http://x/"', "servers.a_b: the name must be of lower-case"),
            ('[servers.ask]\nurl="http://x/"', "servers.ask: tools of agents have names"),
            ('[servers.a]\nurl="http://x/"\nport=1', "servers.a.port: unknown key"),
            ('[servers.a]\nurl="ftp://x/"', "servers.a.url: String should match"),
            ('[servers.a]\nurl="http://u:p@x/"', "servers.a: url: must not hold credentials"),
            ('[servers.a]\nurl="http://[x/"', "servers.a: url: must be an http://"),
            ('[servers.a]\nurl="http://x/"\nargs=["a"]', "args: does not go with url"),
            ('[servers.a]\ncommand="sh"\nheaders={a="b"}', "headers: does not go with command"),
            ('[servers.a]\ncommand="no-such-program"', "there is no program 'no-such-program'"),
            ('[servers.a]\ncommand="sh"\nenv=["GONE"]', "env: the variable GONE is not set"),
            ('[servers.a]\ncommand="sh"\nenv=["A=B"]', "servers.a.env.0: String should match"),
            ('[servers.a]\nurl="http://x/"\nheader_env={A="GONE"}', "variable GONE is not set"),
            ('[servers.a]\nurl="http://x/"\nheader_env={A="BAD"}', "cannot be a header (A)"),
            ('[servers.a]\nurl="http://x/"\nheaders={Host="b"}', "Host is set by the protocol"),
            ('[servers.a]\nurl="http://x/"\nheaders={Mcp-Method="b"}', "Mcp-Method is set by"),
            ('[servers.a]\nurl="http://x/"\ntimeout_seconds=0', "timeout_seconds: Input should"),
            (
                '[servers.a]\nurl="http://x/"\ntools=["b"]\nread_only=["c"]',
                "read_only: 'c' is not among its tools",
            ),
        ],
    )
    def test_each_fault_is_told_with_its_place(self, tmp_path: Path, text: str, told: str) -> None:
        path = write(tmp_path, text)

        with pytest.raises(McpFileError) as refused:
            load_mcp_servers(path, ENVIRON)

        assert str(refused.value).startswith(str(path))
        assert told in str(refused.value)
        assert "\n" not in str(refused.value).replace("\n(", "(")

    def test_all_faults_are_told_at_once(self, tmp_path: Path) -> None:
        path = write(tmp_path, "[servers.a]\n[servers.b]")

        with pytest.raises(McpFileError, match=r"servers\.a: needs.*; .*servers\.b: needs"):
            load_mcp_servers(path, ENVIRON)

    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(McpFileError, match="cannot be read: No such file"):
            load_mcp_servers(tmp_path / "gone.toml", ENVIRON)
