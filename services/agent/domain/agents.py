"""Agents: what they may be made of is checked before they are kept."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from services.agent.domain import hints
from services.agent.domain.callees import check_callees
from services.agent.domain.errors import (
    UnknownKnowledgeBaseError,
    UnknownModelError,
    UnknownToolError,
)
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.mcp.access import McpAccess
from services.agent.domain.models import Agent, AgentId, AgentSettings, McpBinding
from services.agent.domain.patch import patched, paths
from services.agent.domain.ports import Knowledge, ModelRegistry, ToolRegistry
from services.agent.domain.stores import AgentStore, RequestKey
from services.agent.domain.tools.read_more import READ_MORE
from services.agent.domain.tools.registry import is_tool_name
from services.agent.domain.turn.citations import ASK_PREFIX
from services.common.errors import InvalidArgumentError
from services.common.hints import Notifier
from services.common.identity import Identity
from services.common.paging import Listing, Page


class Agents:
    """Makes, shows and changes agents."""

    def __init__(
        self,
        store: AgentStore,
        *,
        models: ModelRegistry,
        tools: ToolRegistry,
        knowledge: Knowledge,
        hooks: Hooks,
        mcp: McpAccess,
        notifier: Notifier,
    ) -> None:
        self._store = store
        self._models = models
        self._tools = tools
        self._knowledge = knowledge
        self._hooks = hooks
        self._mcp = mcp
        self._notifier = notifier

    async def create(
        self, identity: Identity, settings: AgentSettings, *, request: RequestKey | None = None
    ) -> Agent:
        """A new agent of this user's.

        Raises:
            InvalidArgumentError: a setting cannot be; the field is named.
            KnowledgeUnavailableError: its bases cannot be checked now.
            McpUnavailableError: one of its MCP servers cannot be looked at now.
            RequestIdReusedError: the request came before with other content.
        """
        if request is not None:
            first = await self._store.created(identity, request)
            if first is not None:
                return first
        await self._check(identity, settings, paths())
        await check_callees(self._store, identity, settings.agent_ids)
        bindings = await self._mcp.bound(settings.mcp_servers)
        kept = replace(settings, mcp_servers=bindings)
        return await self._store.create(identity, kept, request=request)

    async def get(self, identity: Identity, agent_id: AgentId) -> Agent:
        """An agent that the user sees; NotFoundError where there is none."""
        return await self._store.get(identity, agent_id)

    async def list(
        self, identity: Identity, page: Page, *, display_name: str = ""
    ) -> Listing[Agent]:
        """Agents that the user sees, oldest first."""
        agents = await self._store.list(identity, page.with_one_more(), display_name=display_name)
        return page.cut(agents)

    async def update(
        self, identity: Identity, agent_id: AgentId, new: AgentSettings, changed: Iterable[str]
    ) -> Agent:
        """The agent with the settings at some paths taken from the new ones.

        Raises:
            InvalidArgumentError: a setting cannot be; the field is named.
            KnowledgeUnavailableError: its bases cannot be checked now.
            McpUnavailableError: a newly named MCP server cannot be looked at now.
            NotFoundError: the user sees no such agent.
            PermissionDeniedError: the user sees it but may not change it.
        """
        changed = frozenset(changed)
        agent = await self._store.get(identity, agent_id)
        await self._check(identity, new, changed)
        if "agent_ids" in changed:
            await check_callees(self._store, identity, new.agent_ids, caller=agent)
        bindings: tuple[McpBinding, ...] = ()
        if "mcp_servers" in changed:
            bindings = await self._mcp.bound(new.mcp_servers, agent.settings.mcp_servers)

        def change(current: AgentSettings) -> AgentSettings:
            kept = {each.server: each for each in current.mcp_servers}
            # Consent that was given meanwhile stays.
            now_bound = tuple(kept.get(each.server, each) for each in bindings)
            return patched(current, replace(new, mcp_servers=now_bound), changed)

        updated = await self._store.update(identity, agent_id, change)
        self._notifier.notify(hints.STOPS)
        return updated

    async def delete(self, identity: Identity, agent_id: AgentId) -> datetime:
        """Delete an agent; gives when. Its sessions stay, its runs end.

        Raises:
            NotFoundError: the user sees no such agent.
            PermissionDeniedError: the user sees it but may not delete it.
        """
        time = await self._store.delete(identity, agent_id)
        self._notifier.notify(hints.STOPS)
        return time

    async def _check(
        self, identity: Identity, settings: AgentSettings, changed: frozenset[str]
    ) -> None:
        if "display_name" in changed and not settings.display_name.strip():
            raise InvalidArgumentError.of_field("agent.display_name", "must not be empty")
        if "model" in changed and self._models.get(settings.model) is None:
            known = (info.name for info in self._models.list())
            raise UnknownModelError.of("agent.model", settings.model, known=known)
        if "tools" in changed:
            self._check_tools("agent.tools[{}]", settings.tools)
        if "approvals" in changed:
            self._check_approvals(settings)
        if "hooks" in changed:
            self._hooks.chosen(settings.hooks)
        if "knowledge_base_ids" in changed and settings.knowledge_base_ids:
            await self._check_bases(identity, settings)

    def _check_tools(self, field: str, names: Sequence[str]) -> None:
        for place, name in enumerate(names):
            if self._tools.get(name) is None:
                known = (spec.name for spec in self._tools.list())
                raise UnknownToolError.of(field.format(place), name, known=known)

    def _check_approvals(self, settings: AgentSettings) -> None:
        """Make sure that each of them is about a tool that there is, or that there can be."""
        for place, each in enumerate(settings.approvals):
            if not self._may_be_called(each.tool):
                field = f"agent.approvals[{place}].tool"
                known = [READ_MORE, *(spec.name for spec in self._tools.list())]
                raise UnknownToolError.of(field, each.tool, known=[*known, *self._beginnings()])

    def _may_be_called(self, name: str) -> bool:
        """Whether a run can ever have a tool of that name, though perhaps none does now."""
        if self._tools.get(name) is not None or name == READ_MORE:
            return True
        beginnings = tuple(each.removesuffix("*") for each in self._beginnings())
        return name.startswith(beginnings) and name not in beginnings and is_tool_name(name)

    def _beginnings(self) -> Sequence[str]:
        """What the names of tools begin with that come from elsewhere, each as a pattern."""
        servers = (f"{server}_*" for server in self._mcp.names())
        return [f"{ASK_PREFIX}*", *servers]

    async def _check_bases(self, identity: Identity, settings: AgentSettings) -> None:
        bases = await self._knowledge.bases(identity, settings.knowledge_base_ids)
        for place, base_id in enumerate(settings.knowledge_base_ids):
            if base_id not in bases:
                raise UnknownKnowledgeBaseError.of(f"agent.knowledge_base_ids[{place}]", base_id)
