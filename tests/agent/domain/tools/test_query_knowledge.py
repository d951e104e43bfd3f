import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from services.agent.domain.chat import ToolContext, ToolResult
from services.agent.domain.errors import KnowledgeUnavailableError
from services.agent.domain.models import KnowledgeBaseId, Retrieval
from services.agent.domain.tools.execute import ToolBounds, execute
from services.agent.domain.tools.query_knowledge import MAX_RESULT_CHARS, QueryKnowledge
from services.common.tasks import background_tasks
from tests.agent.domain.tools.contexts import CONTEXT
from tests.agent.turns import Shelf, call

FORBIDDEN = {"user_id", "tenant_id", "tenant", "knowledge_id", "knowledge_base_id", "memory_id"}


def context(*bases: str, top_k: int | None = None, next_label: int = 1) -> ToolContext:
    settings = replace(
        CONTEXT.agent.settings,
        knowledge_base_ids=tuple(map(KnowledgeBaseId, bases)),
        retrieval=Retrieval(top_k=top_k),
    )
    agent = replace(CONTEXT.agent, settings=settings)
    return replace(CONTEXT, agent=agent, next_label=next_label)


def tool(shelf: Shelf, *names: str) -> QueryKnowledge:
    return QueryKnowledge(shelf, bases=[shelf.bases_[name] for name in names])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf().add("b1", "Handbook", "backup one", "backup two").add("b2", "Wiki", "backup")


async def ask(query_knowledge: QueryKnowledge, asked: ToolContext, **more: Any) -> ToolResult:
    return await query_knowledge.run({"query": "backup", **more}, asked)


class TestSpec:
    def test_it_takes_no_id_from_the_model(self, shelf: Shelf) -> None:
        """Case 36: the schema has no user, tenant, bank or base id."""
        for each in (QueryKnowledge(shelf), tool(shelf, "b1"), tool(shelf, "b1", "b2")):
            schema: Any = each.spec.input_schema

            assert not FORBIDDEN & schema["properties"].keys()
            assert schema["additionalProperties"] is False

    def test_several_bases_are_offered_by_name(self, shelf: Shelf) -> None:
        schema: Any = tool(shelf, "b1", "b2").spec.input_schema

        assert schema["properties"]["base"]["enum"] == ["Handbook", "Wiki"]
        assert "b1" not in json.dumps(schema)

    def test_one_base_is_no_choice(self, shelf: Shelf) -> None:
        schema: Any = tool(shelf, "b1").spec.input_schema

        assert list(schema["properties"]) == ["query"]

    def test_bases_of_one_name_are_told_apart(self) -> None:
        shelf = Shelf().add("b1", "Docs").add("b2", "Docs").add("b3", "Docs (2)")
        schema: Any = tool(shelf, "b1", "b2", "b3").spec.input_schema

        assert schema["properties"]["base"]["enum"] == ["Docs", "Docs (2)", "Docs (2) (2)"]


class TestRun:
    async def test_passages_are_numbered_from_the_call_s_own_block(self, shelf: Shelf) -> None:
        result = await ask(tool(shelf, "b1"), context("b1", next_label=6))

        assert result.text == (
            "[6] Handbook › Part › 1 (lines 1-1)\nbackup one\n\n"
            "[7] Handbook › Part › 2 (lines 2-2)\nbackup two"
        )
        assert [each.label for each in result.citations] == ["6", "7"]

    async def test_all_bases_are_searched_or_the_one_that_is_named(self, shelf: Shelf) -> None:
        both = tool(shelf, "b1", "b2")

        await ask(both, context("b1", "b2"))
        await ask(both, context("b1", "b2"), base="Wiki")

        assert [bases for _, bases in shelf.searched] == [("b1", "b2"), ("b2",)]

    async def test_no_more_passages_come_than_the_block_is_wide(self, shelf: Shelf) -> None:
        class Generous(Shelf):
            async def search(self, *args: Any, **more: Any) -> Sequence[Any]:
                return await super().search(*args, **{**more, "top_k": 100})

        generous = Generous(shelf.bases_, shelf.passages)

        result = await ask(tool(generous, "b1", "b2"), context("b1", "b2", top_k=2))

        assert len(result.citations) == 2

    async def test_the_whole_result_is_bounded(self) -> None:
        shelf = Shelf().add("b1", "Handbook", *(f"backup {'x' * 50_000}" for _ in range(5)))

        result = await ask(tool(shelf, "b1"), context("b1"))

        assert len(result.text) <= MAX_RESULT_CHARS
        assert len(result.citations) == 5

    async def test_nothing_found_is_said(self, shelf: Shelf) -> None:
        result = await tool(shelf, "b1").run({"query": "restore"}, context("b1"))

        assert result == ToolResult("Nothing was found.")

    async def test_a_base_that_is_gone_meanwhile_is_skipped(self, shelf: Shelf) -> None:
        both = tool(shelf, "b1", "b2")
        del shelf.bases_["b2"]

        result = await ask(both, context("b1", "b2"))

        assert [each.knowledge_base_id for each in result.citations] == ["b1", "b1"]

    async def test_when_all_are_gone_it_says_so(self, shelf: Shelf) -> None:
        both = tool(shelf, "b1", "b2")
        shelf.bases_.clear()

        assert (await ask(both, context("b1", "b2"))).error == "no_base"

    async def test_without_a_list_it_finds_out_what_the_user_sees(self, shelf: Shelf) -> None:
        await ask(QueryKnowledge(shelf), context("b1", "unseen"))

        assert shelf.searched == [("backup", ("b1",))]

    async def test_a_service_that_is_down_is_told(self, shelf: Shelf) -> None:
        shelf.down = True

        with pytest.raises(KnowledgeUnavailableError):
            await ask(tool(shelf, "b1"), context("b1"))


class TestCase36:
    @pytest.mark.parametrize(
        "arguments",
        [
            '{"query": "plan", "kb_id": "kb-of-u2"}',
            '{"query": "plan", "user_id": "u2"}',
            '{"query": "plan", "base": "b2"}',
            '{"query": "plan", "base": "Wiki of somebody else"}',
        ],
    )
    async def test_ids_from_the_model_are_refused_and_nothing_is_searched(
        self, shelf: Shelf, arguments: str
    ) -> None:
        query_knowledge = tool(shelf, "b1", "b2")

        async with background_tasks() as tasks:
            result = await execute(
                call("d", "query_knowledge", arguments),
                {"query_knowledge": query_knowledge},
                context("b1", "b2"),
                bounds=ToolBounds(),
                tasks=tasks,
            )

        assert result.error == "invalid_arguments"
        assert shelf.searched == []

    async def test_a_query_is_only_ever_a_query(self, shelf: Shelf) -> None:
        await tool(shelf, "b1").run({"query": "tea' OR 1=1 --"}, context("b1"))

        assert shelf.searched == [("tea' OR 1=1 --", ("b1",))]
