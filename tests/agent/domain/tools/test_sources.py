import pytest

from services.agent.domain.chat import RunContext
from services.agent.domain.models import AgentSettings, KnowledgeBaseId
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools, Supply
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
