"""MCP servers as users meet them: which there are, and what of them an agent may use."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from services.agent.domain.errors import (
    McpServerNotBoundError,
    McpUnavailableError,
    UnknownMcpServerError,
)
from services.agent.domain.mcp.consent import consent_to, consented, with_approved
from services.agent.domain.mcp.models import McpDeclaration, McpServer
from services.agent.domain.mcp.ports import McpServers
from services.agent.domain.models import Agent, AgentId, AgentSettings, McpBinding
from services.agent.domain.stores import AgentStore
from services.common.identity import Identity
from services.common.tasks import task_group


class McpAccess:
    """Shows servers, and keeps what users consent to."""

    def __init__(self, servers: McpServers, store: AgentStore) -> None:
        self._servers = servers
        self._store = store

    def names(self) -> Sequence[str]:
        """What the servers are called, sorted, whether they answer or not."""
        return [each.name for each in self._servers.declared()]

    async def list(
        self, identity: Identity, agent_id: AgentId | None = None
    ) -> Sequence[McpServer]:
        """All servers, sorted by name, and what an agent is consented to.

        Raises:
            NotFoundError: the user sees no such agent.
        """
        agent = None if agent_id is None else await self._store.get(identity, agent_id)
        async with task_group() as group:
            asked = [
                group.create_task(self._server(each, agent)) for each in self._servers.declared()
            ]
        return [task.result() for task in asked]

    async def approve(
        self, identity: Identity, agent_id: AgentId, server: str, digests: Collection[str]
    ) -> McpServer:
        """The server after an agent was allowed these tools of it.

        Raises:
            NotFoundError: the user sees no such agent.
            PermissionDeniedError: the user sees it but may not change it.
            UnknownMcpServerError: no such server is declared.
            McpServerNotBoundError: the agent has not been given this server.
            McpToolChangedError: a digest is no tool's any more; nothing is approved.
            McpUnavailableError: the server does not answer.
        """
        agent = await self._store.get(identity, agent_id)
        declaration = self._declared(server, field="server")
        if _binding(agent.settings, server) is None:
            raise McpServerNotBoundError.of(server)
        tools = (await self._servers.catalogue(server)).tools

        def change(settings: AgentSettings) -> AgentSettings:
            binding = _binding(settings, server)
            if binding is None:
                raise McpServerNotBoundError.of(server)
            approved = with_approved(binding, tools, digests)
            kept = (approved if each is binding else each for each in settings.mcp_servers)
            return replace(settings, mcp_servers=tuple(kept))

        return await self._server(declaration, await self._store.update(identity, agent_id, change))

    async def bound(
        self, wanted: Sequence[McpBinding], before: Sequence[McpBinding] = ()
    ) -> tuple[McpBinding, ...]:
        """Bindings to the wanted servers: consent as it was given, to newly named ones as they are.

        Raises:
            UnknownMcpServerError: no such server is declared.
            McpUnavailableError: a newly named one does not answer, so that nobody can consent.
        """
        kept = {each.server: each for each in before}
        for place, each in enumerate(wanted):
            if each.server not in kept:
                self._declared(each.server, field=f"agent.mcp_servers[{place}]")
        async with task_group() as group:
            asked = {
                each.server: group.create_task(self._consented(each.server))
                for each in wanted
                if each.server not in kept
            }
        new = {server: task.result() for server, task in asked.items()}
        return tuple({**kept, **new}[each.server] for each in wanted)

    async def _consented(self, server: str) -> McpBinding:
        return consented(server, (await self._servers.catalogue(server)).tools)

    async def _server(self, declaration: McpDeclaration, agent: Agent | None) -> McpServer:
        name, transport = declaration.name, declaration.transport
        binding = None if agent is None else _binding(agent.settings, name)
        bound = binding is not None
        try:
            catalogue = await self._servers.catalogue(name)
        except McpUnavailableError as error:
            return McpServer(name, transport, None, error=error.message, bound=bound)
        consents = (
            {}
            if binding is None
            else {tool.digest: consent_to(tool, binding) for tool in catalogue.tools}
        )
        return McpServer(name, transport, catalogue, consents=consents, bound=bound)

    def _declared(self, server: str, *, field: str) -> McpDeclaration:
        declared = {each.name: each for each in self._servers.declared()}
        if server not in declared:
            raise UnknownMcpServerError.of(field, server, known=declared)
        return declared[server]


def _binding(settings: AgentSettings, server: str) -> McpBinding | None:
    return next((each for each in settings.mcp_servers if each.server == server), None)
