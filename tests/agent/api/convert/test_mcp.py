from chatmind.agent.v1 import mcp_pb2

from services.agent.api.convert.mcp import from_server
from services.agent.domain.mcp.models import McpCatalogue, McpConsent, McpServer, McpTransport
from tests.agent.domain.mcp.tools import listed, offered


class TestFromServer:
    def test_one_that_answers_is_told_with_its_tools(self) -> None:
        look, odd = offered(listed("look"), listed("odd", type="array"))
        server = McpServer(
            "files",
            McpTransport.STDIO,
            McpCatalogue("2025-11-25", [look, odd]),
            consents={look.digest: McpConsent.NEW, odd.digest: McpConsent.REFUSED},
            bound=True,
        )

        told = from_server(server)

        assert (told.transport, told.state) == (1, mcp_pb2.McpServer.STATE_CONNECTED)
        assert (told.protocol_version, told.bound) == ("2025-11-25", True)
        assert [tool.name for tool in told.tools] == ["files_look", "files_odd"]
        assert [tool.consent for tool in told.tools] == [2, 4]
        assert [tool.read_only for tool in told.tools] == [True, False]
        assert "not of type" in told.tools[1].refusal

    def test_one_that_does_not_answer_is_told_with_the_reason(self) -> None:
        told = from_server(McpServer("web", McpTransport.HTTP, None, error="it is down"))

        assert (told.state, told.error) == (mcp_pb2.McpServer.STATE_UNAVAILABLE, "it is down")
        assert list(told.tools) == []
