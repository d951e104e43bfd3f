"""The tools of MCP servers as a source of a run's tools."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from services.agent.domain.chat import RunContext, ToolContext, ToolEffect, ToolResult, ToolSpec
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.mcp.consent import consent_to
from services.agent.domain.mcp.models import McpConsent, McpTool
from services.agent.domain.mcp.ports import McpServers
from services.agent.domain.models import McpBinding
from services.agent.domain.ports import Tool
from services.agent.domain.tools.sources import Supply
from services.common.tasks import task_group
from services.common.text import Json


class ServedTool:
    """A tool whose work an MCP server does."""

    def __init__(self, servers: McpServers, tool: McpTool) -> None:
        self._servers = servers
        self._tool = tool
        self._spec = ToolSpec(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            idempotent=tool.read_only,
            effect=ToolEffect.READ_ONLY if tool.read_only else ToolEffect.OUTBOUND,
            foreign=True,
        )

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return self._spec

    async def run(
        self,
        arguments: Mapping[str, Json],
        context: ToolContext,  # noqa: ARG002 - the port has it; a server is told nothing of it
    ) -> ToolResult:
        """Have the server do it.

        Raises:
            McpUnavailableError: it does not answer.
            ToolError: nothing came back that can be used, or the tool has changed since.
        """
        return await self._servers.call(self._tool, arguments)


@dataclass(frozen=True, slots=True)
class McpTools:
    """The approved tools of the agent's MCP servers, as far as those answer.

    Attributes:
        servers: those that the operator has declared.
    """

    servers: McpServers

    async def supply(self, context: RunContext) -> Supply:
        """The tools of each server; one that does not answer adds none, and a note in the log."""
        bindings = context.agent.settings.mcp_servers
        if not bindings:
            return Supply()
        async with task_group() as group:
            asked = [group.create_task(self._of(binding, context)) for binding in bindings]
        return Supply({tool.spec.name: tool for task in asked for tool in task.result()})

    async def _of(self, binding: McpBinding, context: RunContext) -> list[Tool]:
        log = structlog.get_logger("mcp").bind(server=binding.server, run_id=context.run.id)
        try:
            catalogue = await self.servers.catalogue(binding.server)
        except McpUnavailableError as error:
            log.warning("MCP server is not available", error=error.message)
            return []
        consents = [(tool, consent_to(tool, binding)) for tool in catalogue.tools]
        kept = [tool for tool, consent in consents if consent is McpConsent.APPROVED]
        waiting = [tool.name for tool, consent in consents if consent is not McpConsent.APPROVED]
        if waiting:
            log.info("MCP tools are not offered", tools=waiting)
        return [ServedTool(self.servers, tool) for tool in kept]
