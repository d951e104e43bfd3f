from services.agent.domain.mcp.text import visible


class TestVisible:
    def test_what_a_person_sees_stays(self) -> None:
        assert visible("Liest Ä, 日本\n\t😀") == "Liest Ä, 日本\n\t😀"

    def test_what_nobody_sees_is_left_out(self) -> None:
        hidden = "\u200b\u202e\U000e0041\U000e0100\ufe0f\x1b\u2066"

        assert visible(f"a{hidden}b") == "ab"
