"""Agents in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from services.agent.domain.access import check_may_change, sees
from services.agent.domain.models import Agent, AgentId, AgentSettings
from services.agent.domain.stores import RequestKey
from services.agent.store.memory.database import MemoryDatabase
from services.common.identity import Identity
from services.common.paging import Page


class MemoryAgentStore:
    """`AgentStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def create(
        self, identity: Identity, settings: AgentSettings, *, request: RequestKey | None = None
    ) -> Agent:
        first = await self.created(identity, request) if request is not None else None
        if first is not None:
            return first
        now = self._db.clock()
        agent_id = AgentId(self._db.new_id())
        agent = Agent(agent_id, identity.tenant, identity.user_id, settings, now, now)
        self._db.agents[agent.id] = agent
        self._db.remember(identity, request, "create_agent", agent.id)
        return agent

    async def created(self, identity: Identity, request: RequestKey) -> Agent | None:
        first = self._db.earlier(identity, request, "create_agent")
        return None if first is None else self._db.agent(identity, AgentId(first))

    async def get(self, identity: Identity, agent_id: AgentId) -> Agent:
        return self._db.agent(identity, agent_id)

    async def list(
        self, identity: Identity, page: Page, *, display_name: str = ""
    ) -> Sequence[Agent]:
        after = page.after[0] if page.after else ""
        seen = [
            agent
            for agent in sorted(self._db.agents.values(), key=lambda agent: agent.id)
            if sees(identity, agent)
            and agent.id > after
            and display_name in ("", agent.settings.display_name)
        ]
        return seen[: page.size]

    async def named(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, Agent]:
        found = (self._db.agents.get(agent_id) for agent_id in agent_ids)
        return {agent.id: agent for agent in found if agent is not None and sees(identity, agent)}

    async def callees(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, tuple[AgentId, ...]]:
        found = (self._db.agents.get(agent_id) for agent_id in agent_ids)
        return {
            agent.id: agent.settings.agent_ids
            for agent in found
            if agent is not None and agent.tenant == identity.tenant
        }

    async def update(
        self,
        identity: Identity,
        agent_id: AgentId,
        change: Callable[[AgentSettings], AgentSettings],
    ) -> Agent:
        agent = self._db.agent(identity, agent_id)
        check_may_change(identity, agent)
        changed = replace(agent, settings=change(agent.settings), update_time=self._db.clock())
        self._db.agents[agent_id] = changed
        return changed

    async def delete(self, identity: Identity, agent_id: AgentId) -> datetime:
        check_may_change(identity, self._db.agent(identity, agent_id))
        del self._db.agents[agent_id]
        return self._db.clock()
