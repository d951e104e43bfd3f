from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.agent.domain.chat import RunContext
from services.agent.domain.models import AgentSettings, KnowledgeBaseId
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import (
    Calendar,
    Continuations,
    KnowledgeTools,
    RegisteredTools,
    Supply,
)
from tests.agent.turns import PlainTool, Scene, ScriptedModel, Shelf

B1, B2 = KnowledgeBaseId("b1"), KnowledgeBaseId("b2")


def context(settings: AgentSettings) -> RunContext:
    return Scene(ScriptedModel(), settings=settings).context()


class TestRegisteredTools:
    async def test_the_agent_s_tools_are_given_and_no_others(self) -> None:
        look, send = PlainTool("look"), PlainTool("send")
        source = RegisteredTools(Tools([look, send]))

        assert await source.supply(
            context(AgentSettings("Helper", tools=("send", "gone")))
        ) == Supply({"send": send})

    async def test_the_search_is_never_among_them(self) -> None:
        source = RegisteredTools(Tools([PlainTool("query_knowledge")]))

        settings = AgentSettings("Helper", tools=("query_knowledge",))

        assert await source.supply(context(settings)) == Supply()


class TestKnowledgeTools:
    async def test_with_bases_there_is_a_search_and_the_model_is_told_of_them(self) -> None:
        shelf = Shelf().add("b1", "Handbook", description="How we work.")
        source = KnowledgeTools(shelf)

        supply = await source.supply(context(AgentSettings("Helper", knowledge_base_ids=(B2, B1))))

        assert list(supply.tools) == ["query_knowledge"]
        assert supply.knowledge_base_ids == (B1,)
        assert "- Handbook: How we work." in supply.instructions

    @pytest.mark.parametrize("bases", [(), (B2,)])
    async def test_without_a_base_that_is_seen_there_is_nothing(
        self, bases: tuple[KnowledgeBaseId, ...]
    ) -> None:
        source = KnowledgeTools(Shelf())

        supply = await source.supply(context(AgentSettings("Helper", knowledge_base_ids=bases)))

        assert supply == Supply()

    async def test_a_service_that_is_down_is_asked_when_the_tool_is_called(self) -> None:
        source = KnowledgeTools(Shelf(down=True))

        supply = await source.supply(context(AgentSettings("Helper", knowledge_base_ids=(B1,))))

        assert list(supply.tools) == ["query_knowledge"]
        assert supply.knowledge_base_ids == (B1,)
        assert "query_knowledge searches them" in supply.instructions


class TestContinuations:
    async def test_every_run_can_read_on(self) -> None:
        source = Continuations(Scene(ScriptedModel()).journal, 1000)

        supply = await source.supply(context(AgentSettings("Helper")))

        assert list(supply.tools) == ["read_more"]


class TestCalendar:
    @pytest.mark.parametrize(
        ("agent", "session", "told"),
        [
            ("", "", "Today is Monday, 2026-06-01 (UTC)."),
            ("Pacific/Auckland", "", "Today is Tuesday, 2026-06-02 (Pacific/Auckland)."),
            ("Asia/Shanghai", "America/Adak", "Today is Sunday, 2026-05-31 (America/Adak)."),
            ("Gone/Zone", "", "Today is Monday, 2026-06-01 (UTC)."),
        ],
    )
    async def test_the_day_on_which_the_question_came_is_told_where_the_user_is(
        self, agent: str, session: str, told: str
    ) -> None:
        begun = context(AgentSettings("Helper", time_zone=agent))
        asked = replace(begun, session_time_zone=session)
        moment = datetime(2026, 6, 1, 15 if agent != "Asia/Shanghai" else 3, tzinfo=UTC)
        asked = replace(asked, run=replace(asked.run, create_time=moment))

        assert await Calendar().supply(asked) == Supply(instructions=told)
