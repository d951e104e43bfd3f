"""The other agents that an agent may ask, as a source of tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.agent.domain.chat import RunContext
from services.agent.domain.models import Agent, AgentId
from services.agent.domain.sub_runs import MAX_DEPTH
from services.agent.domain.tools.ask_agent import AskAgentTool, tool_names
from services.agent.domain.tools.sources import Supply
from services.common.identity import Identity


class AgentLookup(Protocol):
    """Finds agents; a `stores.AgentStore` does."""

    async def named(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, Agent]:
        """Those of the named agents that the user sees."""


@dataclass(frozen=True, slots=True)
class AgentTools:
    """A tool for each agent that the run's agent names, as far as they may be asked.

    Left out are agents that the user does not see, the run's own agent and those above it that
    wait for it, since agents change after they were checked, and all of them at the lowest level.

    Attributes:
        agents: keeps them.
    """

    agents: AgentLookup

    async def supply(self, context: RunContext) -> Supply:
        """The tools.

        Raises:
            ServiceError: agents cannot be looked up now; nor can anything of the run be stored.
        """
        run = context.run
        wanted = context.agent.settings.agent_ids
        if not wanted or len(run.callers) >= MAX_DEPTH:
            return Supply()
        seen = await self.agents.named(context.identity, wanted)
        above = {*run.callers, run.agent_id}
        agents = [seen[each] for each in wanted if each in seen and each not in above]
        names = tool_names(agents)
        return Supply({names[each.id]: AskAgentTool(names[each.id], each) for each in agents})
