import asyncio
import json
from pathlib import Path

import pytest
import structlog

from services.agent.clients.mcp import stdio as stdio_module
from services.agent.clients.mcp.stdio import MAX_MESSAGE_BYTES, UnreadableError, _Lines
from services.agent.domain.errors import McpUnavailableError
from tests.agent.clients.mcp.fixtures import opened, stdio
from tests.agent.fake_mcp import COMMAND


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestProgram:
    async def test_it_sees_the_named_variables_and_no_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CHATMIND_DATABASE_URL", "postgresql://secret")
        async with opened(stdio(COMMAND[1], "2025-11-25", TOKEN="t1")) as fake:
            seen = json.loads((await fake.call("environment")).text)

        assert seen["TOKEN"] == "t1"
        assert seen["HOME"] == seen["cwd"] == seen["TMPDIR"]
        assert "CHATMIND_DATABASE_URL" not in seen
        assert {*seen} - {"LC_CTYPE"} == {
            *("HOME", "LANG", "TMPDIR", "TOKEN", "cwd", "pid", "child")
        }

    async def test_it_ends_with_all_that_it_started(self) -> None:
        async with opened(stdio(COMMAND[1], "2025-11-25")) as fake:
            seen = json.loads((await fake.call("environment")).text)
            assert alive(seen["pid"])
            assert alive(seen["child"])

        assert not alive(seen["pid"])
        async with asyncio.timeout(5):
            while alive(seen["child"]):  # noqa: ASYNC110 - init reaps it, at some time
                await asyncio.sleep(0.01)
        assert not await asyncio.to_thread(Path(seen["cwd"]).exists)

    async def test_one_that_does_not_want_to_end_is_ended(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(stdio_module, "END_GRACE", 0.2)
        note = tmp_path / "pid"
        program = (
            "import os,signal,time,pathlib,sys\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
            "while True: time.sleep(1)\n"
        )
        async with opened(stdio("-c", program, str(note))) as stubborn:
            asking = asyncio.create_task(stubborn.servers.catalogue("fake"))
            async with asyncio.timeout(10):
                while not (note.exists() and note.read_text()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            asking.cancel()

        async with asyncio.timeout(5):
            while alive(int(note.read_text())):  # noqa: ASYNC110 - it is reaped aside
                await asyncio.sleep(0.01)

    async def test_what_it_says_aside_is_logged_and_bounded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stdio_module, "MOST_LOGGED_LINES", 3)
        program = "import sys\nfor n in range(9): print('x' * 900, file=sys.stderr)"
        with structlog.testing.capture_logs() as logs:
            async with opened(stdio("-c", program)) as noisy:
                with pytest.raises(McpUnavailableError):
                    await noisy.servers.catalogue("fake")

        said = [each["text"] for each in logs if each["event"] == "MCP server says"]
        assert [len(each) for each in said] == [500, 500, 500]
        assert [each for each in logs if "says too much" in each["event"]]

    async def test_a_program_that_cannot_be_started_is_told(self, tmp_path: Path) -> None:
        settings = stdio()
        (tmp_path / "file").write_text("no program")
        (tmp_path / "file").chmod(0o644)
        broken = settings.__class__(
            settings.declaration, settings.reach.__class__(str(tmp_path / "file")), 1.0
        )
        async with opened(broken) as dead:
            with pytest.raises(McpUnavailableError, match=r"cannot be started.*ermission denied"):
                await dead.servers.catalogue("fake")


class TestLines:
    def test_messages_are_put_together_from_pieces(self) -> None:
        lines = _Lines()

        assert lines.messages(b'hello\n{"jsonrpc":"2.0",') == []
        (message,) = lines.messages(b'"id":1,"result":{}}\n{')

        assert message.model_dump()["id"] == 1

    @pytest.mark.parametrize(
        ("head", "tail"),
        [(b'{"jsonrpc":"2.0","id":7,"result":"', b'"}'), (b'{"result":"', b'", "id": 7}')],
    )
    def test_one_that_is_too_long_fails_the_request_it_answers(
        self, head: bytes, tail: bytes
    ) -> None:
        lines, found = _Lines(), []
        for piece in (head, *[b"x" * 1_000_000] * 5, tail + b"\n"):
            found += lines.messages(piece)

        (message,) = found
        told = message.model_dump()
        assert told["id"] == 7
        assert f"over {MAX_MESSAGE_BYTES} bytes" in told["error"]["message"]
        assert len(lines._line) < MAX_MESSAGE_BYTES

    def test_one_that_answers_nobody_ends_the_connection(self) -> None:
        lines = _Lines()
        for _ in range(5):
            lines.messages(b"x" * 1_000_000)

        with pytest.raises(UnreadableError):
            lines.messages(b"\n")
