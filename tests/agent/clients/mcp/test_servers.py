import subprocess
import sys

import pytest

from services.agent.domain.errors import McpUnavailableError
from tests.agent.clients.mcp.fixtures import fake_server, http, opened


class TestServers:
    async def test_one_that_is_not_declared_is_not_available(self) -> None:
        async with opened() as none:
            assert list(none.servers.declared()) == []
            with pytest.raises(McpUnavailableError, match="not declared"):
                await none.servers.catalogue("fake")

    async def test_they_are_told_by_name(self) -> None:
        async with opened(http("http://x/", name="b"), http("http://x/", name="a")) as two:
            assert [each.name for each in two.servers.declared()] == ["a", "b"]

    async def test_one_that_is_down_costs_no_other(self) -> None:
        dead = http("http://127.0.0.1:9/mcp", name="dead")
        async with fake_server("http", "2026-07-28") as fake, opened(dead) as other:
            with pytest.raises(McpUnavailableError):
                await other.servers.catalogue("dead")
            assert await fake.tools()

    def test_without_servers_the_sdk_is_not_loaded(self) -> None:
        script = (
            "import asyncio, sys\n"
            "from services.agent.clients.mcp.servers import open_mcp\n"
            "async def main():\n"
            "    async with open_mcp(()):\n"
            "        pass\n"
            "asyncio.run(main())\n"
            "sys.exit('mcp' in sys.modules)\n"
        )

        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
