from services.agent.domain.chat import RunContext, ToolEffect
from services.agent.domain.mcp.consent import consented
from services.agent.domain.mcp.source import McpTools
from services.agent.domain.models import AgentSettings, McpBinding
from services.agent.domain.tools.sources import Supply
from tests.agent.domain.mcp.tools import Shown, listed
from tests.agent.domain.tools.contexts import CONTEXT
from tests.agent.turns import Scene, ScriptedModel


def context(*bindings: McpBinding) -> RunContext:
    settings = AgentSettings("Helper", mcp_servers=bindings)
    return Scene(ScriptedModel(), settings=settings).context()


async def binding(servers: Shown, name: str) -> McpBinding:
    return consented(name, (await servers.catalogue(name)).tools)


class TestSupply:
    async def test_without_servers_there_is_nothing(self) -> None:
        assert await McpTools(Shown({"files": [listed()]})).supply(context()) == Supply()

    async def test_approved_tools_are_given_and_no_others(self) -> None:
        servers = Shown({"files": [listed("look"), listed("write")]})
        bound = await binding(servers, "files")
        servers.tools["files"] = [listed("look"), listed("write", "Pulled."), listed("new")]

        supply = await McpTools(servers).supply(context(bound))

        assert list(supply.tools) == ["files_look"]

    async def test_a_server_that_is_down_costs_no_other(self) -> None:
        servers = Shown({"files": [listed("look")], "web": [listed("get")]})
        bound = [await binding(servers, "files"), await binding(servers, "web")]
        servers.down = frozenset({"files"})

        supply = await McpTools(servers).supply(context(*bound))

        assert list(supply.tools) == ["web_get"]

    async def test_only_the_operator_s_word_makes_a_tool_harmless(self) -> None:
        servers = Shown({"files": [listed("look"), listed("write")]})
        bound = await binding(servers, "files")

        tools = (await McpTools(servers).supply(context(bound))).tools

        look, write = tools["files_look"].spec, tools["files_write"].spec
        assert (look.effect, look.idempotent) == (ToolEffect.READ_ONLY, True)
        assert (write.effect, write.idempotent) == (ToolEffect.OUTBOUND, False)
        assert not look.trusted
        assert look.foreign
        assert write.foreign

    async def test_a_call_goes_to_the_server(self) -> None:
        servers = Shown({"files": [listed("look")]})
        tools = (await McpTools(servers).supply(context(await binding(servers, "files")))).tools

        result = await tools["files_look"].run({"a": 1}, CONTEXT)

        assert result.text == "done"
        assert servers.calls == [("look", {"a": 1})]
