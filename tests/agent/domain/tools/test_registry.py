import pytest

from services.agent.domain.tools.registry import Tools
from tests.agent.turns import PlainTool


class TestTools:
    def test_tools_are_found_by_name_and_listed_in_order(self) -> None:
        second, first = PlainTool("b"), PlainTool("a")
        tools = Tools([second, first])

        assert tools.get("b") is second
        assert tools.get("c") is None
        assert tools.list() == [first.spec, second.spec]

    @pytest.mark.parametrize("names", [("a", "a"), ("",), ("a b",), ("x" * 65,), ("名",)])
    def test_a_name_that_a_model_cannot_use_is_refused(self, names: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="malformed or comes twice"):
            Tools([PlainTool(name) for name in names])
