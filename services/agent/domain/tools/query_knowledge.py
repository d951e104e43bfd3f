"""The tool that looks things up in the agent's knowledge bases.

Which bases those are comes from the agent and the user's sight alone. Where there are several the
model may choose one by name, from a list; no id is ever taken from it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from services.agent.domain.chat import (
    KnowledgeBase,
    Passage,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
)
from services.agent.domain.models import KnowledgeBaseId
from services.agent.domain.ports import Knowledge
from services.agent.domain.tools.function import object_schema
from services.agent.domain.turn.citations import labelled, render
from services.common.errors import NotFoundError
from services.common.text import Json

QUERY_KNOWLEDGE: Final = "query_knowledge"
MAX_QUERY_CHARS: Final = 2000
"""Keeps any query below the 8,192 bytes that the knowledge service takes."""

MAX_RESULT_CHARS: Final = 24_000

# A passage as an example would be copied by small models, in place of a call.
_DESCRIPTION = (
    "Looks up passages in the knowledge bases. Use it before answering anything that they may "
    "know about; ask again in other words if the first passages do not answer. Goes in: what to "
    "look for, in the user's language. Comes out: numbered passages with their source. "
    'Example: {"query": "how to restore a backup"}.'
)
_QUERY: Mapping[str, Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_QUERY_CHARS,
    "description": "what to look for: a question or key words",
}
_NOTHING = "Nothing was found."


class QueryKnowledge:
    """The tool; for a run it is made anew with the bases that the run's user sees."""

    def __init__(self, knowledge: Knowledge, *, bases: Sequence[KnowledgeBase] | None = None):
        """Makes the tool.

        Args:
            knowledge: holds the documents.
            bases: those to search; None finds them out at each call.
        """
        self._knowledge = knowledge
        self._bases = None if bases is None else _by_name(bases)
        self._spec = ToolSpec(
            name=QUERY_KNOWLEDGE,
            description=_DESCRIPTION,
            input_schema=_input_schema(list(self._bases or ())),
            idempotent=True,
            effect=ToolEffect.READ_ONLY,
        )

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return self._spec

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        """Search, and give the passages with labels from the call's own block.

        Raises:
            ServiceError: the knowledge service cannot be asked, or refuses.
        """
        chosen = await self._chosen(arguments.get("base"), context)
        query = str(arguments["query"])
        try:
            found = await self._search(query, chosen, context)
        except NotFoundError:
            found = await self._search(query, await self._seen(chosen, context), context)
        if found is None:
            return ToolResult("Error: there is no knowledge base to search.", error="no_base")
        passages = labelled(found, context.next_label)
        return ToolResult(
            text=render(passages, max_chars=MAX_RESULT_CHARS) or _NOTHING,
            citations=tuple(passage.citation for passage in passages),
        )

    async def _search(
        self, query: str, bases: Sequence[KnowledgeBaseId], context: ToolContext
    ) -> Sequence[Passage] | None:
        if not bases:
            return None
        retrieval = context.agent.settings.retrieval
        found = await self._knowledge.search(
            context.identity,
            bases,
            query=query,
            top_k=retrieval.passages,
            min_score=retrieval.min_score,
        )
        return found[: retrieval.passages]

    async def _chosen(self, name: Json, context: ToolContext) -> list[KnowledgeBaseId]:
        if self._bases is None:
            return await self._seen(context.agent.settings.knowledge_base_ids, context)
        return [base.id for key, base in self._bases.items() if name in {None, key}]

    async def _seen(
        self, bases: Sequence[KnowledgeBaseId], context: ToolContext
    ) -> list[KnowledgeBaseId]:
        seen = await self._knowledge.bases(context.identity, bases) if bases else {}
        return [base for base in bases if base in seen]


def _input_schema(names: list[str]) -> dict[str, Json]:
    properties: dict[str, Json] = {"query": _QUERY}
    if len(names) > 1:
        properties["base"] = {
            "type": "string",
            "enum": names,
            "description": "the one knowledge base to search; leave it out to search all",
        }
    return object_schema(properties, ["query"])


def _by_name(bases: Sequence[KnowledgeBase]) -> dict[str, KnowledgeBase]:
    """The bases by display name, those of one name told apart by a number."""
    named: dict[str, KnowledgeBase] = {}
    for base in bases:
        name, number = base.display_name, 1
        while name in named:
            number += 1
            name = f"{base.display_name} ({number})"
        named[name] = base
    return named
