import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.chat import ChatMessage, ToolSpec
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.tokens import (
    cut_to_tokens,
    estimate_message,
    estimate_tokens,
    estimate_tool,
)
from services.common.text import Json

MARK_TOKENS = 25


class TestEstimate:
    @pytest.mark.parametrize(
        ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("备份", 2), ("备份abcd", 3)]
    )
    def test_chinese_counts_by_character(self, text: str, tokens: int) -> None:
        assert estimate_tokens(text) == tokens

    def test_a_message_costs_its_calls_too(self) -> None:
        plain = ChatMessage(Role.ASSISTANT, "")
        call = ToolCall(ToolCallId("a"), "look", "{}")

        calling = estimate_message(ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)))
        assert calling > estimate_message(plain) > 0

    def test_a_tool_costs_its_schema_too(self) -> None:
        schema: dict[str, Json] = {"type": "object", "properties": {"what": {"type": "string"}}}

        small, large = ToolSpec("a", "b", {}, True), ToolSpec("a", "b", schema, True)
        assert estimate_tool(large) > estimate_tool(small) + 10


class TestCutToTokens:
    def test_what_fits_stays(self) -> None:
        assert cut_to_tokens("abcd" * 10, 10) == "abcd" * 10

    def test_a_cut_text_says_how_long_it_was(self) -> None:
        cut = cut_to_tokens("x" * 1000, 100)

        assert cut.startswith("xxx")
        assert cut.endswith("\n[cut here to fit the model: 1000 characters in all]")

    @given(text=st.text(alphabet="ab备 \n", max_size=800), tokens=st.integers(0, 300))
    def test_it_is_no_longer_than_it_may_be_but_for_the_mark(self, text: str, tokens: int) -> None:
        cut = cut_to_tokens(text, tokens)

        assert estimate_tokens(cut) <= max(tokens, MARK_TOKENS)
        assert cut == text or text.startswith(cut[: cut.index("\n[cut here")])
