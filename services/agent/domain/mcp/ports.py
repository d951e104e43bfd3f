"""What the domain needs of MCP servers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.agent.domain.chat import ToolResult
from services.agent.domain.mcp.models import McpCatalogue, McpDeclaration, McpTool
from services.common.text import Json


class McpServers(Protocol):
    """The servers that the operator has declared, each reached when it is needed."""

    def declared(self) -> Sequence[McpDeclaration]:
        """All of them, sorted by name."""

    async def catalogue(self, server: str) -> McpCatalogue:
        """What a server offers now; one that is not connected is waited for, some seconds at most.

        Raises:
            McpUnavailableError: it does not answer, or nobody has declared it.
        """

    async def call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        """What comes of a call; what the server says is wrong is a result with an error.

        Raises:
            McpUnavailableError: the server does not answer.
            ToolError: nothing came back that can be used, or the tool has changed since.
        """
