"""What a run works with: its model, its tools, its knowledge bases and its instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.agent.domain.chat import Ending, RunContext
from services.agent.domain.errors import UnknownModelError
from services.agent.domain.hooks.registry import Hooks, HookSet
from services.agent.domain.ports import Model, ModelRegistry, Tool
from services.agent.domain.run_models import Offered, RunError, RunState, StopReason
from services.agent.domain.tools.read_more import READ_MORE
from services.agent.domain.tools.sources import ToolSource
from services.agent.domain.turn.prompt import system_prompt
from services.common.errors import InvalidArgumentError
from services.common.tasks import task_group


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run works with.

    Attributes:
        model: answers.
        tools: what it may call, by name.
        prompt: its instructions.
        offered: the record of all this.
        hooks: stand around its steps.
    """

    model: Model
    tools: Mapping[str, Tool]
    prompt: str
    offered: Offered
    hooks: HookSet = field(default_factory=HookSet)


class Plans(Protocol):
    """Makes plans."""

    async def plan(self, context: RunContext) -> Plan:
        """What this run works with, as things are now.

        Raises:
            UnknownModelError: the agent's model is no longer registered.
            InvalidArgumentError: one of its hooks is no longer registered, or has changed.
        """


@dataclass(frozen=True, slots=True)
class Planner:
    """Assembles what runs work with.

    Attributes:
        models: by name.
        sources: where tools come from; of two tools of one name, that of the earlier source holds.
        hooks: by name.
    """

    models: ModelRegistry
    sources: Sequence[ToolSource]
    hooks: Hooks = field(default_factory=Hooks)

    async def plan(self, context: RunContext) -> Plan:
        """What this run works with, as things are now.

        Raises:
            UnknownModelError: the agent's model is no longer registered.
            InvalidArgumentError: one of its hooks is no longer registered, or has changed.
        """
        settings = context.agent.settings
        model = self.models.get(settings.model)
        if model is None:
            raise UnknownModelError(f"This agent's model {settings.model!r} is not configured.")
        hooks = self.hooks.chosen(settings.hooks)
        async with task_group() as group:
            asked = [group.create_task(source.supply(context)) for source in self.sources]
        supplies = [task.result() for task in asked]
        tools: dict[str, Tool] = {}
        for supply in supplies:
            tools = {**tools, **{n: tool for n, tool in supply.tools.items() if n not in tools}}
        bases = [base for supply in supplies for base in supply.knowledge_base_ids]
        return Plan(
            model=model,
            tools=tools,
            prompt=system_prompt(settings.system_prompt, *(each.instructions for each in supplies)),
            offered=Offered(
                tuple(name for name in tools if name != READ_MORE),
                tuple(bases),
                model.info.name,
                hooks.names,
            ),
            hooks=hooks,
        )


def not_to_be_had(error: InvalidArgumentError) -> Ending:
    """The end of a run whose agent names a model or a hook that is not there any more."""
    of_model = isinstance(error, UnknownModelError)
    reason = StopReason.MODEL_ERROR if of_model else StopReason.HOOK
    return Ending(RunState.ERROR, reason, RunError(error.reason, error.message))
