"""Servers of all kinds, as the tests of the MCP client need them."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from services.agent.clients.mcp.file import HttpSettings, McpServerSettings, StdioSettings
from services.agent.clients.mcp.servers import Servers, open_mcp
from services.agent.domain.chat import ToolResult
from services.agent.domain.mcp.models import McpDeclaration, McpTool, McpTransport
from services.common.text import Json
from tests.agent.fake_mcp import COMMAND, Fake, fake_http

KINDS = [(kind, version) for kind in ("stdio", "http") for version in ("2025-11-25", "2026-07-28")]


def stdio(*args: str, name: str = "fake", seconds: float = 10.0, **env: str) -> McpServerSettings:
    """A program that Python runs."""
    declaration = McpDeclaration(name, McpTransport.STDIO)
    return McpServerSettings(declaration, StdioSettings(sys.executable, args, env), seconds)


def http(
    url: str, *, name: str = "fake", seconds: float = 10.0, **headers: str
) -> McpServerSettings:
    """A server at an address."""
    declaration = McpDeclaration(name, McpTransport.HTTP)
    return McpServerSettings(declaration, HttpSettings(url, headers), seconds)


class Opened:
    """A process's servers, of which one is called "fake".

    Attributes:
        servers: all of them.
        fake: that one, where it runs in this process.
    """

    def __init__(self, servers: Servers, fake: Fake | None) -> None:
        self.servers = servers
        self.fake = fake

    async def tools(self) -> Mapping[str, McpTool]:
        """The tools of the one, by its own names."""
        catalogue = await self.servers.catalogue("fake")
        return {tool.original_name: tool for tool in catalogue.tools}

    async def call(self, tool: str, **arguments: Json) -> ToolResult:
        """What comes of a call."""
        return await self.servers.call((await self.tools())[tool], arguments)


@asynccontextmanager
async def opened(*settings: McpServerSettings, fake: Fake | None = None) -> AsyncIterator[Opened]:
    """These servers."""
    async with open_mcp(sorted(settings, key=lambda each: each.declaration.name)) as servers:
        yield Opened(servers, fake)


@asynccontextmanager
async def fake_server(kind: str, version: str, *, seconds: float = 10.0) -> AsyncIterator[Opened]:
    """The fake server, as a program or over HTTP."""
    async with AsyncExitStack() as stack:
        if kind == "stdio":
            settings, fake = stdio(COMMAND[1], version, seconds=seconds), None
        else:
            running = await stack.enter_async_context(fake_http(version))
            settings, fake = http(running.url, seconds=seconds), running.fake
        yield await stack.enter_async_context(opened(settings, fake=fake))


_PROGRAM = (
    "from mcp.server import MCPServer\n"
    "from mcp.server.mcpserver import Context\n"
    "m = MCPServer('official')\n"
    "@m.tool()\n"
    "def add(a: int, b: int) -> int:\n"
    "    'Adds two numbers.'\n"
    "    return a + b\n"
    "@m.tool()\n"
    "async def grow(ctx: Context) -> str:\n"
    "    'Adds a tool.'\n"
    "    m.add_tool(add, name='grown')\n"
    "    await ctx.notify_tools_changed()\n"
    "    return 'done'\n"
    "import sys\n"
    "more = {} if sys.argv[1] == 'stdio' else {'port': int(sys.argv[2])}\n"
    "m.run(transport=sys.argv[1], **more)\n"
)
OFFICIAL: Sequence[str] = ("-c", _PROGRAM)
"""The official SDK's server with one tool: over its pipes, or over HTTP at a port."""
