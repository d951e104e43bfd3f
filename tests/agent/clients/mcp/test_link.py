import asyncio
import time

import pytest

from services.agent.clients.mcp import link
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.tools.errors import FailedToolError
from tests.agent.clients.mcp.fixtures import fake_server, http, opened, stdio
from tests.agent.fake_mcp import COMMAND


class TestLink:
    async def test_many_callers_share_one_connection(self) -> None:
        async with fake_server("stdio", "2026-07-28") as fake:
            results = await asyncio.gather(*(fake.call("environment") for _ in range(5)))

        assert len({result.text.partition('"pid": ')[2].split(",")[0] for result in results}) == 1

    async def test_one_that_cannot_be_reached_is_left_alone_for_a_while(self) -> None:
        async with opened(http("http://127.0.0.1:9/mcp")) as dead:
            with pytest.raises(McpUnavailableError, match="it cannot be reached"):
                await dead.servers.catalogue("fake")
            begun = time.monotonic()
            with pytest.raises(McpUnavailableError, match="it cannot be reached"):
                await dead.servers.catalogue("fake")

            assert time.monotonic() - begun < 0.1

    @pytest.mark.parametrize(
        ("program", "why"),
        [
            ("import sys; sys.exit(1)", "it ended before it answered"),
            ("print('no JSON here')", "it ended before it answered"),
        ],
    )
    async def test_a_program_that_is_no_server_is_told(self, program: str, why: str) -> None:
        async with opened(stdio("-c", program)) as dead:
            with pytest.raises(McpUnavailableError, match=why):
                await dead.servers.catalogue("fake")

    async def test_one_that_is_slow_to_start_is_not_waited_for_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(link, "PATIENCE", 0.2)
        async with opened(stdio("-c", "import time; time.sleep(60)")) as slow:
            begun = time.monotonic()
            with pytest.raises(McpUnavailableError, match="not started yet"):
                await slow.servers.catalogue("fake")

            assert time.monotonic() - begun < 2

    async def test_one_that_died_is_started_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(link, "FIRST_PAUSE", 0.0)
        async with opened(stdio(COMMAND[1], "2025-11-25")) as fake:
            with pytest.raises(FailedToolError):
                await fake.call("die")
            async with asyncio.timeout(10):
                while True:
                    try:
                        result = await fake.call("echo", text="hi")
                    except McpUnavailableError:
                        await asyncio.sleep(0.05)
                    else:
                        break

        assert result.text == 'echo: {"text": "hi"}'

    async def test_what_a_server_says_is_wrong_is_shown_as_a_person_would_see_it(self) -> None:
        program = (
            "import json,sys\n"
            "for line in sys.stdin:\n"
            "    id_ = json.loads(line).get('id')\n"
            "    error = {'code': -1, 'message': 'go\\u202e \\x1b[31maway' + 'y' * 5000}\n"
            "    print(json.dumps({'jsonrpc': '2.0', 'id': id_, 'error': error}), flush=True)\n"
        )
        async with opened(stdio("-c", program)) as odd:
            with pytest.raises(McpUnavailableError) as refused:
                await odd.servers.catalogue("fake")

        assert "it answered with an error: go [31maway" in refused.value.message
        assert len(refused.value.message) < 1200
