"""What a run works with: its model, its tools, its knowledge bases and its instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.agent.domain.chat import KnowledgeBase, RunContext
from services.agent.domain.errors import KnowledgeUnavailableError, UnknownModelError
from services.agent.domain.ports import Knowledge, Model, ModelRegistry, Tool, ToolRegistry
from services.agent.domain.run_models import Offered
from services.agent.domain.tools.query_knowledge import QUERY_KNOWLEDGE, QueryKnowledge
from services.agent.domain.turn.prompt import system_prompt


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run works with.

    Attributes:
        model: answers.
        tools: what it may call, by name.
        prompt: its instructions.
        offered: the record of all this.
    """

    model: Model
    tools: Mapping[str, Tool]
    prompt: str
    offered: Offered


@dataclass(frozen=True, slots=True)
class Planner:
    """Assembles what runs work with.

    Attributes:
        models: by name.
        tools: by name.
        knowledge: tells which bases a user sees.
    """

    models: ModelRegistry
    tools: ToolRegistry
    knowledge: Knowledge

    async def plan(self, context: RunContext) -> Plan:
        """What this run works with, as things are now.

        Bases that the user does not see are left out, tools that are no longer registered too.

        Raises:
            UnknownModelError: the agent's model is no longer registered.
        """
        settings = context.agent.settings
        model = self.models.get(settings.model)
        if model is None:
            raise UnknownModelError(f"This agent's model {settings.model!r} is not configured.")
        bases = await self._bases(context)
        tools = self._tools(settings.tools, bases)
        shown = settings.knowledge_base_ids if bases is None else [base.id for base in bases]
        return Plan(
            model=model,
            tools=tools,
            prompt=system_prompt(settings.system_prompt, bases),
            offered=Offered(tuple(tools), tuple(shown), model.info.name),
        )

    async def _bases(self, context: RunContext) -> list[KnowledgeBase] | None:
        """The agent's bases that the user sees; None where that cannot be told now."""
        ids = context.agent.settings.knowledge_base_ids
        if not ids:
            return []
        try:
            seen = await self.knowledge.bases(context.identity, ids)
        except KnowledgeUnavailableError:
            return None
        return [seen[base_id] for base_id in ids if base_id in seen]

    def _tools(
        self, names: Sequence[str], bases: Sequence[KnowledgeBase] | None
    ) -> dict[str, Tool]:
        tools = {
            name: tool
            for name in names
            if name != QUERY_KNOWLEDGE and (tool := self.tools.get(name)) is not None
        }
        if bases is None or bases:
            tools[QUERY_KNOWLEDGE] = QueryKnowledge(self.knowledge, bases=bases)
        return tools
