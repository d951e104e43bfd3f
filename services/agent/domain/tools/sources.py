"""Where the tools of a run come from: each source adds its own, whatever the others are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Protocol

from services.agent.domain.chat import KnowledgeBase, RunContext
from services.agent.domain.errors import KnowledgeUnavailableError
from services.agent.domain.models import KnowledgeBaseId
from services.agent.domain.ports import CutResults, Knowledge, Tool, ToolRegistry
from services.agent.domain.tools.query_knowledge import QUERY_KNOWLEDGE, QueryKnowledge
from services.agent.domain.tools.read_more import READ_MORE, ReadMore
from services.agent.domain.turn.prompt import about_bases
from services.agent.domain.zones import DEFAULT_ZONE, zone_of


@dataclass(frozen=True, slots=True)
class Supply:
    """What a source adds to a run.

    Attributes:
        tools: what its model may call, by name.
        instructions: what its model is told besides; empty where the tools speak for themselves.
        knowledge_base_ids: the bases that its tools search, for the run's record.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    instructions: str = ""
    knowledge_base_ids: tuple[KnowledgeBaseId, ...] = ()


class ToolSource(Protocol):
    """A kind of tools that an agent can have."""

    async def supply(self, context: RunContext) -> Supply:
        """What it adds to this run, as things are now; it waits for nobody for long.

        What cannot be had now is left out, or fails when it is called; it ends no run.
        """


@dataclass(frozen=True, slots=True)
class RegisteredTools:
    """The tools that the agent names, among those that this process has.

    Attributes:
        registry: of this process; what is no longer in it is left out.
    """

    registry: ToolRegistry

    async def supply(self, context: RunContext) -> Supply:
        """The agent's tools, but for the one that `KnowledgeTools` makes anew for each run."""
        names = (name for name in context.agent.settings.tools if name != QUERY_KNOWLEDGE)
        found = {name: self.registry.get(name) for name in names}
        return Supply({name: tool for name, tool in found.items() if tool is not None})


@dataclass(frozen=True, slots=True)
class KnowledgeTools:
    """The search in the agent's knowledge bases, where there are any that the user sees.

    Attributes:
        knowledge: tells which bases a user sees, and searches them.
    """

    knowledge: Knowledge

    async def supply(self, context: RunContext) -> Supply:
        """The search, and which bases there are; a service that is down fails when it is called."""
        ids = context.agent.settings.knowledge_base_ids
        bases = await self._bases(context, ids)
        if bases is not None and not bases:
            return Supply()
        shown = ids if bases is None else tuple(base.id for base in bases)
        search = QueryKnowledge(self.knowledge, bases=bases)
        return Supply({QUERY_KNOWLEDGE: search}, about_bases(bases), shown)

    async def _bases(
        self, context: RunContext, ids: Sequence[KnowledgeBaseId]
    ) -> list[KnowledgeBase] | None:
        """The agent's bases that the user sees; None where that cannot be told now."""
        if not ids:
            return []
        try:
            seen = await self.knowledge.bases(context.identity, ids)
        except KnowledgeUnavailableError:
            return None
        return [seen[base_id] for base_id in ids if base_id in seen]


@dataclass(frozen=True, slots=True)
class Continuations:
    """Reading on in results that were cut; every run can, and is told of it once one was cut.

    Attributes:
        results: has the wholes.
        piece_chars: how long a result may be.
    """

    results: CutResults
    piece_chars: int

    async def supply(self, context: RunContext) -> Supply:  # noqa: ARG002 - see `ToolSource`
        """The tool."""
        return Supply({READ_MORE: ReadMore(self.results, piece_chars=self.piece_chars)})


class Calendar:
    """No tool, but the date, which many models get wrong: that of the day the question came.

    It stays the same for the whole run, whoever works on it, and is the last thing that is told, so
    that what stands before it can be cached from day to day. The time is `current_time`'s to tell.
    """

    async def supply(self, context: RunContext) -> Supply:
        """The date where the user is."""
        name = context.time_zone
        # A zone that this machine does not know any more is no reason to fail.
        moment = context.run.create_time.astimezone(zone_of(name) or UTC)
        place = name if zone_of(name) else DEFAULT_ZONE
        return Supply(instructions=f"Today is {moment:%A, %Y-%m-%d} ({place}).")
