from dataclasses import replace

from services.agent.domain.mcp.models import McpDeclaration, McpTransport
from services.agent.domain.mcp.offer import MAX_TOOLS, digest_of
from tests.agent.domain.mcp.tools import FILES, listed, offered


class TestOfferedTools:
    def test_they_are_sorted_and_named_by_their_server(self) -> None:
        tools = offered(listed("write"), listed("look"))

        assert [tool.name for tool in tools] == ["files_look", "files_write"]
        assert [tool.read_only for tool in tools] == [True, False]
        assert [tool.refusal for tool in tools] == ["", ""]

    def test_one_that_is_odd_costs_no_other(self) -> None:
        odd = listed("odd", properties={"a": {"$ref": "http://169.254.169.254/"}})

        tools = {tool.original_name: tool for tool in offered(odd, listed("fine"))}

        assert "nothing is ever fetched" in tools["odd"].refusal
        assert tools["odd"].input_schema == {}
        assert tools["fine"].refusal == ""

    def test_long_or_invisible_texts_are_refused(self) -> None:
        tools = offered(listed("x" * 200), listed("long", "y" * 9000), listed("a\u200bb"))

        assert all(tool.refusal for tool in tools)
        assert max(len(tool.description.encode()) for tool in tools) <= 8192

    def test_only_the_allowed_ones_are_looked_at(self) -> None:
        declaration = McpDeclaration("files", McpTransport.STDIO, tools=frozenset({"look"}))

        tools = offered(listed("look"), listed("write"), declaration=declaration)

        assert [tool.name for tool in tools] == ["files_look"]

    def test_of_two_with_one_name_the_first_is_kept(self) -> None:
        (tool,) = offered(listed("a", "First."), listed("a", "Second."))

        assert tool.description == "First."

    def test_there_is_a_most(self) -> None:
        tools = offered(*(listed(f"t{n}") for n in range(MAX_TOOLS + 5)), declaration=FILES)

        assert len(tools) == MAX_TOOLS


class TestDigest:
    def test_it_changes_with_each_part(self) -> None:
        tool = listed("read", "Reads.", properties={"a": {}})
        others = [
            replace(tool, name="reads"),
            replace(tool, description="Reads. "),
            replace(tool, description="Reads.\u200b"),
            replace(tool, input_schema={"type": "object", "properties": {"a": {"title": "A"}}}),
        ]

        assert len({digest_of(each) for each in [tool, *others]}) == 5

    def test_the_order_of_members_does_not_matter(self) -> None:
        one = replace(listed(), input_schema={"type": "object", "title": "A"})
        other = replace(listed(), input_schema={"title": "A", "type": "object"})

        assert digest_of(one) == digest_of(other)
