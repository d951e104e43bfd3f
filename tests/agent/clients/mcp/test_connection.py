"""What one server can do to a call, over both transports and in both revisions."""

import asyncio
import time
from contextlib import suppress

import pytest

from cli.local.ports import free_ports
from services.agent.clients.mcp import connection
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.mcp.errors import ServerTooSlowError, ToolChangedError
from services.agent.domain.tools.errors import FailedToolError
from tests.agent.clients.mcp.fixtures import (
    KINDS,
    OFFICIAL,
    fake_server,
    http,
    opened,
    stdio,
)
from tests.agent.fake_mcp import TOOLS, fake_http, tool


@pytest.mark.parametrize(("kind", "version"), KINDS)
class TestFake:
    async def test_its_tools_are_known(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            catalogue = await fake.servers.catalogue("fake")

        assert catalogue.protocol_version == version
        tools = {tool.original_name: tool for tool in catalogue.tools}
        assert tools["echo"].name == "fake_echo"
        assert tools["a b"].name != tools["a_b"].name == "fake_a_b"
        assert "nothing is ever fetched" in tools["metadata"].refusal
        assert [name for name, tool in tools.items() if tool.refusal] == ["metadata"]
        assert not tools["write_note"].read_only

    async def test_results_are_read(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            assert (await fake.call("echo", text="hi")).text == 'echo: {"text": "hi"}'
            assert (await fake.call("picture")).text == "[image: image/png, 3 bytes, not shown]"
            assert (await fake.call("count")).text == '{"count": 2}'
            failed = await fake.call("fail")

        assert (failed.text, failed.error) == ("Error: the disk is full", "failed")

    async def test_a_huge_result_fails_its_call_alone(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            slow = asyncio.create_task(fake.call("never"))
            with pytest.raises(FailedToolError, match="over 4194304 bytes"):
                await fake.call("huge")
            await asyncio.sleep(0)
            assert not slow.done()
            assert (await fake.call("echo", text="hi")).error is None
            slow.cancel()
            with suppress(asyncio.CancelledError):
                await slow

    async def test_text_that_is_cut_amid_a_character_is_read(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            assert (await fake.call("half")).text == "cut amid \ufffd"

    async def test_content_of_an_unknown_kind_is_named(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            assert (await fake.call("hologram")).text == "[hologram: not shown]"

    async def test_an_answer_that_is_none_is_told_at_once(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            begun = time.monotonic()
            with pytest.raises(FailedToolError, match="cannot be read"):
                await fake.call("list")
            assert time.monotonic() - begun < 3
            assert (await fake.call("echo", text="hi")).error is None

    async def test_one_that_never_answers_is_waited_for_so_long(
        self, kind: str, version: str
    ) -> None:
        async with fake_server(kind, version, seconds=0.3) as fake:
            await fake.tools()
            begun = time.monotonic()
            with pytest.raises(ServerTooSlowError, match="may or may not have done it"):
                await fake.call("never")
            assert time.monotonic() - begun < 3

    async def test_a_cancelled_call_ends_at_once(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            await fake.tools()
            call = asyncio.create_task(fake.call("never"))
            await asyncio.wait({call}, timeout=0.2)
            begun = time.monotonic()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

            assert time.monotonic() - begun < 1
            assert (await fake.call("echo", text="hi")).error is None

    async def test_one_that_dies_amid_a_call_is_told(self, kind: str, version: str) -> None:
        async with fake_server(kind, version) as fake:
            begun = time.monotonic()
            with pytest.raises(FailedToolError, match=r"connection to it broke off|may not have"):
                await fake.call("die")

            assert time.monotonic() - begun < 5


class TestList:
    async def test_one_odd_tool_does_not_cost_the_others(self) -> None:
        async with fake_http("2025-11-25") as running, opened(http(running.url)) as fake:
            running.fake.tools = [{"name": 5}, tool("cut\ud800"), {"name": "bare"}, *TOOLS]
            tools = await fake.tools()

        assert {"echo", "bare", "cut\ufffd"} < set(tools)
        assert tools["bare"].refusal == ""


class TestRugPull:
    @pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
    async def test_a_change_that_is_told_counts_at_once(self, version: str) -> None:
        async with fake_server("stdio", version) as fake:
            before = (await fake.tools())["echo"]
            await fake.call("pull")
            async with asyncio.timeout(5):
                while "extra" not in await fake.tools():  # noqa: ASYNC110 - it is told aside
                    await asyncio.sleep(0.01)

            with pytest.raises(ToolChangedError):
                await fake.servers.call(before, {"text": "hi"})

    async def test_over_http_too(self) -> None:
        async with fake_http("2025-11-25") as running, opened(http(running.url)) as fake:
            before = (await fake.tools())["echo"]
            running.fake.pull()
            running.news.set()
            async with asyncio.timeout(5):
                while "extra" not in await fake.tools():  # noqa: ASYNC110 - it is told aside
                    await asyncio.sleep(0.01)

            with pytest.raises(ToolChangedError):
                await fake.servers.call(before, {"text": "hi"})
        assert running.fake.calls == []

    @pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
    async def test_one_that_is_not_told_is_found_in_time(
        self, version: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "FRESH_SECONDS", 0.0)
        async with fake_server("http", version) as fake:
            before = (await fake.tools())["echo"]
            await fake.call("pull")

            with pytest.raises(ToolChangedError):
                await fake.servers.call(before, {"text": "hi"})
            assert fake.fake is not None
            assert fake.fake.calls == ["pull"]


class TestSessions:
    @pytest.mark.parametrize(
        "answer",
        [
            (404, b""),
            (404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Not found"}}'),
            (400, b'{"jsonrpc":"2.0","id":"x","error":{"code":-32000,"message":"No session"}}'),
        ],
    )
    async def test_a_session_that_the_server_forgot_is_made_anew(
        self, answer: tuple[int, bytes]
    ) -> None:
        async with fake_http("2025-11-25") as running, opened(http(running.url)) as fake:
            await fake.call("echo", text="one")
            running.forget, running.session = answer, "s2"

            assert (await fake.call("echo", text="two")).error is None

        assert running.fake.calls == ["echo", "echo"]
        assert running.fake.headers[-2]["mcp-session-id"] == "s2"

    async def test_so_it_is_where_the_tools_are_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "FRESH_SECONDS", 0.0)
        async with fake_http("2025-11-25") as running, opened(http(running.url)) as fake:
            await fake.tools()
            running.forget, running.session = (404, b"{}"), "s2"

            assert "echo" in await fake.tools()

    async def test_any_other_refusal_is_told(self) -> None:
        async with fake_http("2025-11-25") as running, opened(http(running.url)) as fake:
            await fake.call("echo", text="one")
            told = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too many"}}'
            running.forget, running.session = (400, told), "s2"

            with pytest.raises(FailedToolError, match="fake answered with an error: too many"):
                await fake.call("echo", text="two")


class TestOfficialServer:
    async def test_it_is_spoken_to_over_pipes(self) -> None:
        async with opened(stdio(*OFFICIAL, "stdio")) as official:
            catalogue = await official.servers.catalogue("fake")
            result = await official.call("add", a=2, b=3)

        assert catalogue.protocol_version == "2026-07-28"
        assert result.text.splitlines()[0] == "5"

    async def test_it_is_spoken_to_over_http(self) -> None:
        port = next(free_ports())
        process = await asyncio.create_subprocess_exec(
            stdio().reach.command,  # type: ignore[union-attr]  # a program
            *OFFICIAL,
            "streamable-http",
            str(port),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with opened(http(f"http://127.0.0.1:{port}/mcp")) as official:
                async with asyncio.timeout(30):
                    result = None
                    while result is None:
                        with suppress(McpUnavailableError):
                            result = await official.call("add", a=2, b=3)
                        await asyncio.sleep(0.1)
                catalogue = await official.servers.catalogue("fake")
                await official.call("grow")
                async with asyncio.timeout(5):
                    while "grown" not in await official.tools():  # noqa: ASYNC110 - told aside
                        await asyncio.sleep(0.01)
        finally:
            process.kill()
            await process.wait()

        assert catalogue.protocol_version == "2026-07-28"
        assert result.text.splitlines()[0] == "5"
