from dataclasses import dataclass

import pytest

from services.agent.domain.chat import RunContext
from services.agent.domain.errors import UnknownModelError
from services.agent.domain.models import AgentSettings, KnowledgeBaseId
from services.agent.domain.run_models import Offered
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import (
    KnowledgeTools,
    RegisteredTools,
    Supply,
    ToolSource,
)
from services.agent.domain.turn.plan import Plan, Planner
from tests.agent.turns import Models, PlainTool, Scene, ScriptedModel, Shelf

B1, B2 = KnowledgeBaseId("b1"), KnowledgeBaseId("b2")


async def planned(settings: AgentSettings, shelf: Shelf | None = None) -> Plan:
    model, tools = ScriptedModel(), [PlainTool("look"), PlainTool("send")]
    sources: list[ToolSource] = [RegisteredTools(Tools(tools)), KnowledgeTools(shelf or Shelf())]
    planner = Planner(Models(model), sources)
    return await planner.plan(Scene(model, settings=settings).context())


@dataclass(frozen=True)
class Fixed:
    """A source that always adds the same."""

    given: Supply

    async def supply(self, context: RunContext) -> Supply:
        return self.given


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

    async def test_sources_add_to_one_another_and_the_earlier_one_s_name_holds(self) -> None:
        first, second, third = PlainTool("look"), PlainTool("look"), PlainTool("send")
        model = ScriptedModel()
        sources: list[ToolSource] = [
            Fixed(Supply({"look": first}, "A.")),
            Fixed(Supply({"look": second}, "", (B1,))),
        ]
        planner = Planner(Models(model), [*sources, Fixed(Supply({"send": third}, "B.", (B2,)))])

        plan = await planner.plan(Scene(model, settings=AgentSettings("Helper")).context())

        assert plan.tools == {"look": first, "send": third}
        assert plan.prompt == "A.\n\nB."
        assert plan.offered == Offered(("look", "send"), (B1, B2), "m")
