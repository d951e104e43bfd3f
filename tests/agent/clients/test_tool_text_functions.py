import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.clients.tool_text_functions import WrittenFunctions, functions

CALL = """<function=look>
<parameter=what>
the backup
</parameter>
<parameter=days>
3
</parameter>
</function>"""
VALUES = {"what": "the backup", "days": "3"}


def read(
    text: str, *, known: tuple[str, ...] = ("look",), most: int = 5, tag_suffices: bool = True
) -> WrittenFunctions | None:
    return functions(text, 0, known=known, most=most, tag_suffices=tag_suffices)


def values(text: str) -> list[object]:
    """The arguments of each call; None for one that breaks off."""
    found = read(text)
    assert found is not None
    return [each.arguments_json and json.loads(each.arguments_json) for each in found.calls]


class TestFunctions:
    @pytest.mark.parametrize(
        "text", [CALL, f"<tool_call>\n{CALL}\n</tool_call>", f" {CALL}\n</tool_call>"]
    )
    def test_a_call_is_read_to_its_end(self, text: str) -> None:
        found = read(text)

        assert found is not None
        assert [each.name for each in found.calls] == ["look"]
        assert values(text) == [VALUES]
        assert found.end == len(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("<function=look></function>", {}),
            ("<function=look>\n</tool_call>", {}),
            ("<function='look'><parameter=\"a\">x</parameter></function>", {"a": "x"}),
            ("<function=look><parameter=a>\nx\n\ny\n</parameter></function>", {"a": "x\n\ny"}),
            ("<function=look><parameter=a>\r\nx\r\n</parameter></function>", {"a": "x"}),
            ("<function=look><parameter=a>\n</parameter></function>", {"a": ""}),
            ("<function=look><parameter=a>1<parameter=b>2</function>", {"a": "1", "b": "2"}),
            ('<function=look><parameter=a>{"x": [1]}</parameter></function>', {"a": '{"x": [1]}'}),
            ("<function=look><parameter=a>a < b > c</parameter></function>", {"a": "a < b > c"}),
        ],
    )
    def test_values_are_text(self, text: str, expected: dict[str, str]) -> None:
        assert values(text) == [expected]

    @pytest.mark.parametrize(
        "text",
        [
            "<function=look>",
            "<function=look>\n<parameter=what>\nthe back",
            "<function=look><parameter=what>x</parameter>",
            "<function=look><parameter=what>x</parameter>\n<param",
            "<function=look>What?</function>",
        ],
    )
    def test_one_that_breaks_off_is_never_taken_for_whole(self, text: str) -> None:
        assert values(text) == [None]

    def test_several_follow_each_other(self) -> None:
        assert values(f"<tool_call>{CALL}\n{CALL}</tool_call>") == [VALUES] * 2

    def test_no_more_are_read_than_asked_for(self) -> None:
        found = read(CALL * 9, most=2)

        assert found is not None
        assert len(found.calls) == 2

    @pytest.mark.parametrize("text", ["", "look", "function=look", " <functions>", "<function=>"])
    def test_anything_else_is_none(self, text: str) -> None:
        assert read(text) is None

    @pytest.mark.parametrize(
        ("text", "tag_suffices", "taken"),
        [
            (CALL, True, False),
            (f"<tool_call>{CALL}", True, True),
            (f"<tool_call>{CALL}", False, False),
        ],
    )
    def test_an_unknown_tool_is_called_in_a_tag_alone(
        self, text: str, tag_suffices: bool, taken: bool
    ) -> None:
        assert (read(text, known=(), tag_suffices=tag_suffices) is not None) == taken

    @given(st.text(alphabet="<>/=\n ax", max_size=200))
    def test_no_text_is_too_odd(self, text: str) -> None:
        found = read(f"<function=look>{text}")

        assert found is None or found.end <= len(text) + 15

    @pytest.mark.parametrize(
        "text", ["<function=look>", "<function=look><parameter=a>", "<parameter=a>", " ", "<"]
    )
    def test_the_time_it_takes_grows_with_the_text_alone(self, text: str) -> None:
        begun = time.monotonic()
        read("<function=look>" + text * (1_000_000 // len(text)))

        assert time.monotonic() - begun < 5
