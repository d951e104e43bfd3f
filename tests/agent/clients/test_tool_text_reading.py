import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.clients.tool_text_reading import with_calls_of_text
from services.agent.clients.tool_text_writing import in_text
from services.agent.domain.chat import (
    ChatMessage,
    FinishReason,
    ModelReply,
    ModelRequest,
    ToolProtocol,
    ToolSpec,
)
from services.agent.domain.drafts import MAX_TOOL_CALLS
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.common.text import clean

LOOK = ToolSpec("look", "Looks.", {"type": "object"}, idempotent=True)
NOW = ToolSpec("now", "Tells the time.", {"type": "object"}, idempotent=True)
OFFERED = ModelRequest((ChatMessage(Role.USER, "Where?"),), tools=(LOOK, NOW))
CALL = '{"name": "look", "arguments": {"what":  "x"}}'
TAGGED = f"<tool_call>\n{CALL}\n</tool_call>"
FENCED = f"```json\n{CALL}\n```"
READ = ("look", '{"what":  "x"}')
NOW_READ = ("now", "{}")
NOW_CALL = '{"name": "now", "arguments": {}}'

FUNCTION = "<function=look>\n<parameter=what>\nx\n</parameter>\n</function>"
FUNCTION_READ = ("look", '{"what": "x"}')

Calls = list[tuple[str, str]]


def call(name: str, arguments: str, id_: str = "c1") -> ToolCall:
    return ToolCall(ToolCallId(id_), name, arguments)


def read(
    text: str,
    request: ModelRequest = OFFERED,
    protocol: ToolProtocol = ToolProtocol.TAGS,
) -> tuple[str, Calls]:
    """What is said, and the names and arguments of the calls."""
    reply = with_calls_of_text(ModelReply(text), request, protocol)
    return reply.text, [(each.name, each.arguments_json) for each in reply.tool_calls]


class TestTags:
    @pytest.mark.parametrize(
        ("text", "said", "calls"),
        [
            (TAGGED, "", [READ]),
            (f"I look.\n\n{TAGGED}\n", "I look.", [READ]),
            (f"I look. <tool_call>{CALL}</tool_call>", "I look.", [READ]),
            (f"<tool_call>{CALL}", "", [READ]),
            (f"<tool_call>{CALL[:-1]}", "", [READ]),
            (f"<tool_call>{CALL}}}</tool_call>{TAGGED}", "", [READ, READ]),
            (f"{TAGGED}\n<tool_call>{NOW_CALL}</tool_call>", "", [READ, NOW_READ]),
            (f"{TAGGED} and then {TAGGED}", "", [READ, READ]),
            (f"<tool_call>{CALL}\n{NOW_CALL}</tool_call>", "", [READ, NOW_READ]),
            (f"<tool_call>[{CALL}, {NOW_CALL}]</tool_call>", "", [READ, NOW_READ]),
            (f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>\n{TAGGED}", "", [READ, READ]),
            (f"```json\n{TAGGED}\n```", "", [READ]),
            (f"{TAGGED}\n<tool_response>\nOn b1.\n</tool_response>\nIt is on b1.", "", [READ]),
            (f"{TAGGED}\n{FENCED}", "", [READ, READ]),
            (f"```python\nlook()\n```\n{TAGGED}", "```python\nlook()\n```", [READ]),
            ('<tool_call>{"name": "gone", "arguments": {}}</tool_call>', "", [("gone", "{}")]),
            ('<tool_call>{"name": "now"}</tool_call>', "", [("now", "")]),
            ('<tool_call>{"name": "now", "arguments": null}</tool_call>', "", [("now", "")]),
            ('<tool_call>{"tool": "now", "args": {}}</tool_call>', "", [NOW_READ]),
            (
                '<tool_call>{"name": "look", "arguments": {"what": "</tool_call>"}}</tool_call>',
                "",
                [("look", '{"what": "</tool_call>"}')],
            ),
            (
                '<tool_call>{"type": "function", "function": {"name": "now", "arguments": "{}"}}',
                "",
                [NOW_READ],
            ),
        ],
    )
    def test_calls_are_read(self, text: str, said: str, calls: Calls) -> None:
        assert read(text) == (said, calls)

    @pytest.mark.parametrize(
        ("text", "calls"),
        [
            (
                '<tool_call>{"name": "look", "arguments": {"what": "x}}</tool_call>',
                [("look", '{"what": "x}')],
            ),
            (
                f'<tool_call>{{"name": "look", "arguments": {{"what": "x}}}}</tool_call>\n{TAGGED}',
                [("look", '{"what": "x}'), READ],
            ),
            (
                f'<tool_call>{{"name": "look", "arguments": {{"what": "x}}}}\n{TAGGED}',
                [("look", '{"what": "x}'), READ],
            ),
            (
                """<tool_call>{"name": "look", "arguments": {'what': {}}}</tool_call>""",
                [("look", "{'what': {}}")],
            ),
            ('<tool_call>{"name": "look", "arguments": {"wh', [("look", '{"wh')]),
            ('<tool_call>{"name": "look", "arguments":', [("look", "{")]),
            ('<tool_call>{"name": "look"', [("look", "{")]),
            ('<tool_call>{"na', [("", "{")]),
            ("<tool_call>{'name': 'look'}</tool_call>", [("", "{")]),
            ("<tool_call>\nlook(what='x')\n</tool_call>", [("", "look(what='x')")]),
            ("<tool_call></tool_call>", [("", "{")]),
            (
                '<tool_call>{"name": "look", "arguments": ["x"]}</tool_call>',
                [("look", '["x"]')],
            ),
            (
                r'<tool_call>{"name": "a\ud800", "arguments": "\u0000"}</tool_call>',
                [("a\ufffd", "\ufffd")],
            ),
        ],
    )
    def test_what_is_wrong_with_a_call_is_for_its_result_to_tell(
        self, text: str, calls: Calls
    ) -> None:
        assert read(text) == ("", calls)

    def test_arguments_that_were_cut_off_are_never_whole(self) -> None:
        opening = '<tool_call>{"name": "look", "arguments": '
        for length in range(len('{"what": {"a": "b"}')):
            cut = opening + '{"what": {"a": "b"}'[:length]

            (found,) = with_calls_of_text(
                ModelReply(cut, finish_reason=FinishReason.LENGTH), OFFERED, ToolProtocol.TAGS
            ).tool_calls

            assert found.name == "look"
            assert found.arguments_json.strip()
            with pytest.raises(json.JSONDecodeError):
                json.loads(found.arguments_json)


class TestJson:
    @pytest.mark.parametrize(
        ("text", "said", "calls"),
        [
            (CALL, "", [READ]),
            (f"\n {CALL}\n", "", [READ]),
            (f"[{CALL}, {NOW_CALL}]", "", [READ, NOW_READ]),
            (FENCED, "", [READ]),
            (f"I look.\n{FENCED}\n", "I look.", [READ]),
            (f"I look.\n```JSON\n{CALL}", "I look.", [READ]),
            (f"```json\n[{CALL}, {NOW_CALL}]\n```", "", [READ, NOW_READ]),
            (f"{FENCED}\n\n{FENCED}", "", [READ, READ]),
            ('{"function": "now", "parameters": {}}', "", [NOW_READ]),
            ('{"tool": "now", "args": "{}"}', "", [NOW_READ]),
            (
                '{"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}',
                "",
                [NOW_READ],
            ),
        ],
    )
    def test_calls_of_known_tools_are_read(self, text: str, said: str, calls: Calls) -> None:
        assert read(text) == (said, calls)


EXAMPLES = [
    "On b1.",
    "",
    "{}",
    "[]",
    "[5]",
    '{"name": "Ann", "arguments": {"age": 5}}',
    '```json\n{"name": "Ann", "age": 5}\n```',
    '```json\n{"name": "gone", "arguments": {}}\n```',
    '{"name": "now", "arguments": 5}',
    '{"name": "now", "arguments": null}',
    '{"name": "now", "arguments": "soon"}',
    '{"name": "now", "tool": "now", "arguments": {}}',
    '{"name": "now"}',
    '{"name": "now", "description": "Tells the time.", "parameters": {"type": "object"}}',
    '{"type": "function", "function": {"name": "now", "description": "x", "parameters": {}}}',
    f'[{CALL}, {{"name": "Ann", "arguments": {{}}}}]',
    f"[{CALL}, 5]",
    f"{CALL} is how it is asked.",
    f"It is asked so:\n{FENCED}\nand answers at once.",
    f"```xml\n{TAGGED}\n```",
    f"```\n{TAGGED}\n```\nshows a call.",
    f"~~~~\n```json\n{CALL}\n```\n{TAGGED}\n~~~~",
    f"- so:\n\n      ```text\n      <tool_call>{CALL}</tool_call>\n      ```",
    f"> ```text\n> <tool_call>{CALL}</tool_call>\n> ```",
    f"```python\nprint('<tool_call>{CALL}</tool_call>')",
    f"Write `<tool_call>{CALL}</tool_call>` to call it.",
    f"Write ``<tool_call>{CALL}</tool_call> ` `` to call it.",
    "Calls stand between <tool_call> and </tool_call>.",
    "<tool_call> is a tag.",
    "[" * 100_000,
]


class TestText:
    @pytest.mark.parametrize("text", EXAMPLES)
    def test_what_is_no_call_stays_as_it_is(self, text: str) -> None:
        assert read(text) == (text, [])

    @pytest.mark.parametrize("text", [TAGGED, FENCED, CALL])
    def test_where_no_tool_is_known_nothing_is_a_call(self, text: str) -> None:
        assert read(text, ModelRequest(OFFERED.messages)) == (text, [])

    @pytest.mark.parametrize("text", [TAGGED, FENCED, CALL])
    def test_a_call_where_only_an_answer_is_left_is_no_answer(self, text: str) -> None:
        asked = ChatMessage(Role.ASSISTANT, "", tool_calls=(call("look", "{}"),))
        result = ChatMessage(Role.TOOL, "x", tool_call_id=ToolCallId("c1"))

        assert read(text, ModelRequest((*OFFERED.messages, asked, result))) == ("", [READ])

    def test_native_calls_leave_the_text_alone(self) -> None:
        reply = ModelReply(TAGGED, tool_calls=(call("now", ""),))

        assert with_calls_of_text(reply, OFFERED, ToolProtocol.TAGS) == reply


class TestNative:
    @pytest.mark.parametrize(
        "text",
        [
            CALL,
            FENCED,
            f"\n```\n{CALL}\n```\n",
            TAGGED,
            f"<tool_call>{CALL}",
            f"[{CALL}]",
        ],
    )
    def test_a_text_that_is_one_call_is_one(self, text: str) -> None:
        assert read(text, protocol=ToolProtocol.NATIVE) == ("", [READ])

    @pytest.mark.parametrize(
        "text",
        [
            *EXAMPLES,
            f"I look.\n{FENCED}",
            f"I look.\n{TAGGED}",
            f"{TAGGED}\n{TAGGED}",
            f"{FENCED}\n{FENCED}",
            f"[{CALL}, {CALL}]",
            f"```python\n{CALL}\n```",
            '<tool_call>{"name": "gone", "arguments": {}}</tool_call>',
            f"<tool_call>{CALL[:-1]}</tool_call>",
        ],
    )
    def test_all_else_is_text(self, text: str) -> None:
        assert read(text, protocol=ToolProtocol.NATIVE) == (text, [])

    def test_tools_that_are_not_offered_are_not_called(self) -> None:
        asked = ChatMessage(Role.ASSISTANT, "", tool_calls=(call("look", "{}"),))
        request = ModelRequest((asked,), tools=(NOW,))

        assert read(CALL, request, ToolProtocol.NATIVE) == (CALL, [])

    def test_where_none_is_offered_any_more_a_call_is_no_answer(self) -> None:
        asked = ChatMessage(Role.ASSISTANT, "", tool_calls=(call("look", "{}"),))
        request = ModelRequest((asked,))

        assert read(FENCED, request, ToolProtocol.NATIVE) == ("", [READ])
        assert read(NOW_CALL, request, ToolProtocol.NATIVE) == (NOW_CALL, [])


class TestWhatever:
    pieces = st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            "`",
            "\\",
            "\n",
            " ",
            ":",
            ",",
            '"',
            "<tool_call>",
            "</tool_call>",
            "```",
        ]
    ) | st.sampled_from(
        ["```json\n", "~~~", '"name"', '"arguments"', '"function"', "look", CALL, "null"]
    )

    @given(st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=30).map("".join))
    def test_any_text_is_read(self, text: str) -> None:
        for protocol in ToolProtocol:
            said, calls = read(text, protocol=protocol)

            assert said in text
            assert calls or said == text

    @given(
        st.lists(
            st.tuples(
                st.text(max_size=9).map(clean),
                st.one_of(
                    st.lists(pieces, max_size=9).map("".join),
                    st.text(max_size=9).map(clean),
                    st.dictionaries(
                        st.text(max_size=9), st.one_of(st.floats(), st.lists(pieces), st.integers())
                    ).map(json.dumps),
                ).map(str.strip),
            ),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["", "I look.", "`code` and ```code```"]),
    )
    def test_calls_that_are_written_are_read_back(self, calls: Calls, said: str) -> None:
        asked = ChatMessage(Role.ASSISTANT, said, tool_calls=tuple(call(*each) for each in calls))

        (written,) = in_text(ModelRequest((asked,))).messages

        assert read(written.text) == (said, calls)

    @pytest.mark.parametrize(
        "piece",
        [
            "<tool_call>",
            "<tool_call>{",
            '<tool_call>{"a":x',
            '<tool_call>{"a":["',
            "x <tool_call>{} ",
            "<tool_call>{}{}",
            "```json\n{}\n```\n",
            "`x``y",
            " ",
            "```\n~~~\n",
            "{",
            '{"function":',
        ],
    )
    def test_a_large_text_takes_no_longer_than_its_size_allows(self, piece: str) -> None:
        text = "<tool_call>" + piece * (1_000_000 // len(piece))
        begun = time.process_time()

        _, calls = read(text)

        assert time.process_time() - begun < 5
        assert len(calls) <= MAX_TOOL_CALLS


class TestFunctions:
    """Calls as Qwen3-Coder writes them."""

    @pytest.mark.parametrize(
        ("text", "said", "calls"),
        [
            (FUNCTION, "", [FUNCTION_READ]),
            (f"I look.\n<tool_call>\n{FUNCTION}\n</tool_call>", "I look.", [FUNCTION_READ]),
            (f"I look.\n{FUNCTION}\n</tool_call>", "I look.", [FUNCTION_READ]),
            (f"<tool_call>{FUNCTION}</tool_call>\n{TAGGED}", "", [FUNCTION_READ, READ]),
            (f"{TAGGED}\n<tool_call>{FUNCTION}</tool_call>", "", [READ, FUNCTION_READ]),
            (f"{FUNCTION}\n<tool_response>\nOn b1.", "", [FUNCTION_READ]),
            (f"```\n{FUNCTION}\n```\nis how.", f"```\n{FUNCTION}\n```\nis how.", []),
            (f"Write `<function=look>`.\n{TAGGED}", "Write `<function=look>`.", [READ]),
            ("<tool_call><function=gone></function></tool_call>", "", [("gone", "{}")]),
            ("A <function=gone></function> tag.", "A <function=gone></function> tag.", []),
            ("<tool_call>\n<function=look>\n<parameter=what>\nx", "", [("look", "{")]),
        ],
    )
    def test_they_are_read_where_tools_are_told_of_in_the_text(
        self, text: str, said: str, calls: Calls
    ) -> None:
        assert read(text) == (said, calls)

    @pytest.mark.parametrize(
        ("text", "calls"),
        [
            (FUNCTION, [FUNCTION_READ]),
            (f"<tool_call>\n{FUNCTION}\n</tool_call>\n", [FUNCTION_READ]),
            (f"I look.\n{FUNCTION}", []),
            (f"{FUNCTION} and more", []),
            (FUNCTION * 2, []),
            ("<tool_call><function=gone></function></tool_call>", []),
        ],
    )
    def test_of_a_native_model_one_call_alone_is_taken(self, text: str, calls: Calls) -> None:
        said, found = read(text, protocol=ToolProtocol.NATIVE)

        assert found == calls
        assert said == ("" if calls else text)

    @pytest.mark.parametrize("piece", ["<function=look></function>", "<function=no></function>"])
    def test_many_of_them_take_no_time(self, piece: str) -> None:
        begun = time.monotonic()
        _, calls = read(f"Well. {piece * 40_000}")

        assert len(calls) <= MAX_TOOL_CALLS
        assert time.monotonic() - begun < 5
