import json
from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Params
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from services.agent.clients.openai_reply import read_reply
from services.agent.clients.openai_request import Dialect, shape_request
from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolSpec
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ModelOptions, ToolCallId
from services.agent.domain.run_models import Usage
from services.agent.domain.turn.context import chat_message
from services.agent.domain.turn.replies import asking
from services.common.text import Json
from tests.agent.dialogue import case

CASE = "23-null-content-and-reasoning"


def shaped(*messages: ChatMessage, dialect: Dialect | None = None, **more: Any) -> dict[str, Json]:
    request = ModelRequest(messages, **more)
    return shape_request(request, model="x", dialect=dialect or Dialect())


def stored(name: str) -> ModelReply:
    """A reply of the case as it was read."""
    choice = {"message": case(CASE, "replies.json")[name], "finish_reason": "stop"}
    return read_reply(json.dumps({"choices": [choice]}).encode())


def sent_back(name: str, dialect: Dialect | None = None) -> dict[str, Json]:
    """What goes back of a reply of the case once it was stored."""
    body = shaped(chat_message(asking(stored(name), model="x")), dialect=dialect)
    messages = body["messages"]
    assert isinstance(messages, list)
    (message,) = messages
    assert isinstance(message, dict)
    return message


class TestCase23:
    def test_a_null_beside_tool_calls_goes_back_as_null(self) -> None:
        original = case(CASE, "replies.json")["A"]

        assert sent_back("A") == {
            "role": "assistant",
            "content": None,
            "tool_calls": original["tool_calls"],
        }

    def test_b_null_without_tool_calls_is_an_empty_answer(self) -> None:
        reply = stored("B")

        assert (reply.text, reply.tool_calls) == ("", ())

    def test_c_thoughts_go_back_where_the_provider_needs_them(self) -> None:
        expected = case(CASE, "expected.json")["C"]["provider_needs_reasoning"]

        back = sent_back("C", Dialect(send_reasoning=True))

        assert back["reasoning_content"] == expected["reasoning_content"]
        assert back["content"] is None

    def test_c_thoughts_do_not_go_to_other_providers(self) -> None:
        assert "reasoning_content" not in sent_back("C")


class TestShape:
    @pytest.mark.parametrize("role", [Role.SYSTEM, Role.USER, Role.ASSISTANT])
    def test_a_text_is_never_null(self, role: Role) -> None:
        body = shaped(ChatMessage(role, ""))

        assert body["messages"] == [{"role": role.value, "content": ""}]

    def test_a_result_names_its_call(self) -> None:
        result = Draft(
            Role.TOOL, "found", tool_call_id=asking(stored("A"), model="x").tool_calls[0].id
        )

        assert shaped(chat_message(result))["messages"] == [
            {"role": "tool", "tool_call_id": "t1", "content": "found"}
        ]

    @pytest.mark.parametrize(
        ("written", "sent"),
        [
            ('{"what": "x", "n": 1.50}', '{"what": "x", "n": 1.50}'),
            (' {"a": {"b": []}}\n', ' {"a": {"b": []}}\n'),
            ("", "{}"),
            ('{"what": "x', "{}"),
            ('{"what": "x"} {"what": "y"}', "{}"),
            ('["x"]', "{}"),
            ('"x"', "{}"),
            ("null", "{}"),
            ('{"n": NaN}', "{}"),
            ('{"a":' * 100_000, "{}"),
            ('{"n": ' + "9" * 5000 + "}", "{}"),
        ],
    )
    def test_arguments_that_are_no_object_are_sent_as_an_empty_one(
        self, written: str, sent: str
    ) -> None:
        """Servers that read them refuse all else, and would do so at every further question."""
        assert self.function(ToolCall(ToolCallId("c1"), "look", written))["arguments"] == sent

    @pytest.mark.parametrize(
        ("written", "sent"),
        [
            ("look", "look"),
            ("functions.look", "functions_look"),
            ("", "_"),
            ("查一下", "___"),
            ("x" * 70, "x" * 64),
        ],
    )
    def test_a_name_that_no_tool_may_have_is_sent_as_one_it_may(
        self, written: str, sent: str
    ) -> None:
        assert self.function(ToolCall(ToolCallId("c1"), written, "{}"))["name"] == sent

    def function(self, call: ToolCall) -> Any:
        """What is sent of a call."""
        body: Any = shaped(ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)))
        return body["messages"][0]["tool_calls"][0]["function"]

    def test_tools_are_offered_as_functions(self) -> None:
        tool = ToolSpec("look", "Looks.", {"type": "object"}, idempotent=True)

        assert shaped(tools=(tool,))["tools"] == [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Looks.",
                    "parameters": {"type": "object"},
                },
            }
        ]

    def test_without_tools_the_field_is_absent(self) -> None:
        assert shaped().keys() == {"model", "messages"}

    def test_options_that_are_set_are_sent(self) -> None:
        options = ModelOptions(
            temperature=0.0, top_p=0.5, max_output_tokens=9, stop=("end",), seed=0
        )

        body = shaped(options=options)

        assert {name: body[name] for name in body.keys() - {"model", "messages"}} == {
            "temperature": 0.0,
            "top_p": 0.5,
            "max_tokens": 9,
            "stop": ["end"],
            "seed": 0,
        }

    def test_openai_s_own_models_want_another_name_for_the_bound(self) -> None:
        dialect = Dialect(max_tokens_field="max_completion_tokens")

        body = shaped(options=ModelOptions(max_output_tokens=9), dialect=dialect)

        assert body["max_completion_tokens"] == 9
        assert "max_tokens" not in body


class TestTypes:
    """What is sent and read, held against the openai package's own types."""

    TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}}, idempotent=True)

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_request_has_them(self, stream: bool) -> None:
        body = shaped(
            ChatMessage(Role.SYSTEM, "Be brief."),
            ChatMessage(Role.USER, "Where?"),
            ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall(ToolCallId("c"), "look", "{}"),)),
            ChatMessage(Role.TOOL, "Here.", tool_call_id=ToolCallId("c"), tool_name="look"),
            ChatMessage(Role.ASSISTANT, "Here."),
            dialect=Dialect(stream=stream, max_tokens_field="max_completion_tokens"),
            tools=(self.TOOL,),
            options=ModelOptions(
                temperature=0.5, top_p=0.5, max_output_tokens=9, stop=("x",), seed=1
            ),
        )
        kind = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming

        TypeAdapter[Any](kind).validate_python(body)

        assert body.keys() <= kind.__annotations__.keys() | Params.__annotations__.keys()

    def test_a_completion_is_read(self) -> None:
        completion = ChatCompletion(
            id="1",
            object="chat.completion",
            created=1,
            model="x-1",
            choices=[
                Choice(
                    index=0,
                    finish_reason="stop",
                    message=ChatCompletionMessage(role="assistant", content="Here."),
                )
            ],
            usage=CompletionUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
        )

        reply = read_reply(completion.model_dump_json().encode())

        assert (reply.text, reply.model, reply.usage) == ("Here.", "x-1", Usage(3, 2))
