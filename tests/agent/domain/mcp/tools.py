"""MCP servers and tools for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.agent.domain.chat import ToolResult
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.mcp.models import (
    ListedTool,
    McpCatalogue,
    McpDeclaration,
    McpTool,
    McpTransport,
)
from services.agent.domain.mcp.offer import offered_tools
from services.common.text import Json

FILES = McpDeclaration("files", McpTransport.STDIO, read_only=frozenset({"look"}))


def listed(name: str = "read", description: str = "Reads.", **schema: Json) -> ListedTool:
    return ListedTool(name, description, {"type": "object", **schema})


def offered(*tools: ListedTool, declaration: McpDeclaration = FILES) -> list[McpTool]:
    return offered_tools(declaration, tools, taken=())


@dataclass
class Shown:
    """Servers that list what they are told to; those without a list do not answer."""

    tools: dict[str, Sequence[ListedTool]] = field(default_factory=dict)
    down: frozenset[str] = frozenset()
    calls: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)

    def declared(self) -> Sequence[McpDeclaration]:
        names = sorted({*self.tools, *self.down})
        return [McpDeclaration(name, McpTransport.HTTP) for name in names]

    async def catalogue(self, server: str) -> McpCatalogue:
        if server not in self.tools or server in self.down:
            raise McpUnavailableError.of(server, "it is down")
        declaration = McpDeclaration(server, McpTransport.HTTP, read_only=frozenset({"look"}))
        return McpCatalogue("2026-07-28", offered_tools(declaration, self.tools[server], taken=()))

    async def call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        self.calls.append((tool.original_name, arguments))
        return ToolResult("done")
