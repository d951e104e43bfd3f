"""The MCP servers of a process."""

import logging
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from services.agent.clients.mcp.file import McpServerSettings
from services.agent.domain.chat import ToolResult
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.mcp.models import McpCatalogue, McpDeclaration, McpTool
from services.common.tasks import background_tasks
from services.common.text import Json


class _Link(Protocol):
    async def catalogue(self) -> McpCatalogue:
        """What the server offers now."""

    async def call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        """What comes of a call."""


class Servers:
    """A fixed set of servers; satisfies `domain.mcp.ports.McpServers`."""

    def __init__(self, declared: Sequence[McpDeclaration], links: Mapping[str, _Link]) -> None:
        """Holds these servers, each with its link."""
        self._declared = declared
        self._links = links

    def declared(self) -> Sequence[McpDeclaration]:
        """All of them, sorted by name."""
        return self._declared

    async def catalogue(self, server: str) -> McpCatalogue:
        """What a server offers now.

        Raises:
            McpUnavailableError: it does not answer, or nobody has declared it.
        """
        return await self._link(server).catalogue()

    async def call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        """What comes of a call.

        Raises:
            McpUnavailableError: the server does not answer, or nobody has declared it.
            ToolError: nothing came back that can be used, or the tool has changed since.
        """
        return await self._link(tool.server).call(tool, arguments)

    def _link(self, server: str) -> _Link:
        if server not in self._links:
            raise McpUnavailableError.of(server, "it is not declared any more")
        return self._links[server]


@asynccontextmanager
async def open_mcp(
    settings: Sequence[McpServerSettings], *, taken: Container[str] = ()
) -> AsyncIterator[Servers]:
    """The servers of these settings; those that run are ended with the block.

    Args:
        settings: sorted by name.
        taken: names of tools that no server's may have.
    """
    if not settings:
        yield Servers((), {})
        return
    # The SDK takes half a second to load, which nobody should wait for in vain.
    from services.agent.clients.mcp.link import Link

    # It logs what servers send, as often as they send it; what matters is told by the links.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    async with background_tasks() as tasks:
        links = {each.declaration.name: Link(each, tasks=tasks, taken=taken) for each in settings}
        yield Servers([each.declaration for each in settings], links)
