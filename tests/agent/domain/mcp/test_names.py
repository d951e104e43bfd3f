import re

import pytest

from services.agent.domain.mcp.names import offered_name


class TestOfferedName:
    def test_it_is_the_server_s_name_and_the_tool_s(self) -> None:
        assert offered_name("files", "read_file", taken=()) == "files_read_file"

    @pytest.mark.parametrize("tool", ["a b", "日本", "x" * 64, "a/b", "", "a.b", "\n"])
    def test_what_does_not_fit_is_made_to(self, tool: str) -> None:
        name = offered_name("files", tool, taken=())

        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
        assert name.startswith("files_")
        assert name == offered_name("files", tool, taken=())

    def test_names_that_would_be_the_same_are_not(self) -> None:
        tools = ["a b", "a_b", "a/b", "x" * 70, "x" * 71]

        assert len(tools) == len({offered_name("files", tool, taken=()) for tool in tools})

    def test_no_tool_takes_the_name_of_another(self) -> None:
        name = offered_name("current", "time", taken={"current_time"})

        assert name != "current_time"
        assert name.startswith("current_time_")
