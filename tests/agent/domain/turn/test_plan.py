import pytest

from services.agent.domain.errors import UnknownModelError
from services.agent.domain.models import AgentSettings, KnowledgeBaseId
from services.agent.domain.run_models import Offered
from services.agent.domain.tools.registry import Tools
from services.agent.domain.turn.plan import Plan, Planner
from tests.agent.turns import Models, PlainTool, Scene, ScriptedModel, Shelf

B1, B2 = KnowledgeBaseId("b1"), KnowledgeBaseId("b2")


async def planned(settings: AgentSettings, shelf: Shelf | None = None) -> Plan:
    model, tools = ScriptedModel(), [PlainTool("look"), PlainTool("send")]
    planner = Planner(Models(model), Tools(tools), shelf or Shelf())
    return await planner.plan(Scene(model, settings=settings).context())


class TestPlan:
    async def test_the_agent_s_tools_are_offered_and_no_others(self) -> None:
        plan = await planned(AgentSettings("Helper", tools=("send", "gone")))

        assert list(plan.tools) == ["send"]
        assert plan.offered == Offered(("send",), (), "m")

    async def test_with_bases_the_search_is_offered_and_the_prompt_says_so(self) -> None:
        shelf = Shelf().add("b1", "Handbook", description="How we work.")

        plan = await planned(AgentSettings("Helper", knowledge_base_ids=(B1,)), shelf)

        assert plan.offered == Offered(("query_knowledge",), (B1,), "m")
        assert "- Handbook: How we work." in plan.prompt

    async def test_bases_that_the_user_does_not_see_are_left_out(self) -> None:
        shelf = Shelf().add("b1", "Handbook")

        plan = await planned(AgentSettings("Helper", knowledge_base_ids=(B2, B1)), shelf)

        assert plan.offered.knowledge_base_ids == (B1,)

    @pytest.mark.parametrize("tools", [(), ("query_knowledge",)])
    async def test_without_a_base_that_is_seen_there_is_no_search(
        self, tools: tuple[str, ...]
    ) -> None:
        plan = await planned(AgentSettings("Helper", tools=tools, knowledge_base_ids=(B2,)))

        assert "query_knowledge" not in plan.tools
        assert plan.prompt == ""

    async def test_a_knowledge_service_that_is_down_does_not_end_the_run(self) -> None:
        settings = AgentSettings("Helper", knowledge_base_ids=(B1,))

        plan = await planned(settings, Shelf(down=True))

        assert plan.offered == Offered(("query_knowledge",), (B1,), "m")
        assert "query_knowledge searches them" in plan.prompt

    async def test_a_model_that_is_gone_is_told(self) -> None:
        with pytest.raises(UnknownModelError, match="'gone' is not configured"):
            await planned(AgentSettings("Helper", model="gone"))
