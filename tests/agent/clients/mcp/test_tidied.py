import pytest

from services.agent.clients.mcp.tidied import tidied
from services.common.text import Json

TOOL: dict[str, Json] = {"name": "ok", "inputSchema": {"type": "object"}}


class TestTools:
    @pytest.mark.parametrize(
        "odd",
        [
            5,
            None,
            [],
            {},
            {"name": 5, "inputSchema": {}},
            {"name": "x", "inputSchema": []},
            {"name": "x", "inputSchema": {"type": "string"}},
            {"name": "x", "inputSchema": {"type": ["object", "null"]}},
            {"name": "x", "description": 5},
        ],
    )
    def test_what_is_no_tool_is_left_out_and_the_others_stay(self, odd: Json) -> None:
        assert tidied({"tools": [odd, TOOL], "nextCursor": "n"}) == {
            "tools": [TOOL],
            "nextCursor": "n",
        }

    @pytest.mark.parametrize("more", [{}, {"inputSchema": None}, {"inputSchema": {}}])
    def test_a_schema_that_says_nothing_is_of_an_object(self, more: dict[str, Json]) -> None:
        assert tidied({"tools": [{"name": "ok", **more}]}) == {"tools": [TOOL]}

    def test_what_nobody_reads_is_dropped(self) -> None:
        odd = {**TOOL, "icons": [5], "outputSchema": {"type": "array"}, "execution": 3}

        assert tidied({"tools": [odd]}) == {"tools": [TOOL]}


class TestContent:
    def test_what_is_of_an_unknown_kind_is_named(self) -> None:
        text: Json = {"type": "text", "text": "hi"}
        result = tidied({"content": [{"type": "hologram", "x": 1}, text]})

        assert result == {"content": [{"type": "text", "text": "[hologram: not shown]"}, text]}

    def test_what_nobody_reads_is_dropped(self) -> None:
        odd: Json = {"type": "text", "text": "hi", "annotations": {"priority": 5}, "_meta": 1}

        assert tidied({"content": [odd]}) == {"content": [{"type": "text", "text": "hi"}]}


def test_any_other_result_stays_as_it_is() -> None:
    assert tidied({"tools": {}, "content": None}) == {"tools": {}, "content": None}
