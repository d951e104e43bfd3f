import json
from typing import Any

import pytest

from services.agent.clients.openai_reply import ReportedError, UnreadableReplyError, read_reply
from services.agent.domain.chat import FinishReason, ModelReply
from services.agent.domain.errors import EmptyAnswerError
from services.agent.domain.run_models import Usage


def read(message: Any, **more: Any) -> ModelReply:
    choice = {"message": message, "finish_reason": more.pop("finish_reason", "stop")}
    return read_reply(json.dumps({"choices": [choice], **more}).encode())


def called(**call: Any) -> Any:
    return read({"content": None, "tool_calls": [call]}).tool_calls[0]


class TestText:
    @pytest.mark.parametrize("message", [{}, {"content": None}, {"content": ""}, {"content": 5}])
    def test_no_content_is_an_empty_text(self, message: dict[str, Any]) -> None:
        assert read(message).text == ""

    def test_parts_are_put_together(self) -> None:
        parts = [{"type": "text", "text": "On "}, {"type": "text", "text": "b1."}, {"x": 1}, 5]

        assert read({"content": parts}).text == "On b1."

    def test_a_refusal_is_a_text(self) -> None:
        assert read({"content": None, "refusal": "No."}).text == "No."

    def test_what_cannot_be_stored_is_replaced(self) -> None:
        assert read({"content": "a\0b\ud800"}).text == "a\ufffdb\ufffd"


class TestReasoning:
    @pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
    def test_it_is_kept_apart(self, field: str) -> None:
        reply = read({"content": "On b1.", field: "Hm."})

        assert (reply.text, reply.reasoning) == ("On b1.", "Hm.")

    def test_thoughts_before_the_answer_are_no_part_of_it(self) -> None:
        reply = read({"content": "<think>\nHm.\n</think>\n\nOn b1. <think> is a tag."})

        assert (reply.text, reply.reasoning) == ("On b1. <think> is a tag.", "Hm.")

    @pytest.mark.parametrize(
        ("content", "text", "reasoning"),
        [
            ("Hm.\n</think>\n\nOn b1.", "On b1.", "Hm."),
            ("</think>\nOn b1.", "On b1.", ""),
            ("Hm.\n</think>", "", "Hm."),
            ("Hm.\n </think> \nOn b1.\n</think>\nx", "On b1.\n</think>\nx", "Hm."),
            ("Close it with </think>.\nDone.", "Close it with </think>.\nDone.", ""),
            ("```\nx\n</think>\n```\ny", "```\nx\n</think>\n```\ny", ""),
            ("Write <think>\nx\n</think>\ny", "Write <think>\nx\n</think>\ny", ""),
        ],
    )
    def test_thoughts_may_have_been_opened_in_the_prompt(
        self, content: str, text: str, reasoning: str
    ) -> None:
        reply = read({"content": content})

        assert (reply.text, reply.reasoning) == (text, reasoning)

    def test_thoughts_that_were_cut_off_are_no_answer(self) -> None:
        reply = read({"content": "<think>Hm, let me"}, finish_reason="length")

        assert (reply.text, reply.reasoning) == ("", "Hm, let me")


class TestToolCalls:
    def test_arguments_come_as_they_were_written(self) -> None:
        call = called(id="c1", function={"name": "look", "arguments": '{"a":  1'})

        assert (call.id, call.name, call.arguments_json) == ("c1", "look", '{"a":  1')

    def test_arguments_given_as_an_object_become_text(self) -> None:
        assert (
            called(function={"name": "x", "arguments": {"a": "备"}}).arguments_json == '{"a": "备"}'
        )

    @pytest.mark.parametrize("call", [{}, {"id": None, "function": None}, {"function": {}}])
    def test_what_is_missing_is_empty(self, call: dict[str, Any]) -> None:
        read_call = called(**call)

        assert (read_call.id, read_call.name, read_call.arguments_json) == ("", "", "")

    @pytest.mark.parametrize("reason", ["length", "content_filter"])
    @pytest.mark.parametrize("written", ["", " ", None, '{"a": "b', '{"a": 1, '])
    def test_arguments_that_were_cut_off_are_never_whole(self, written: Any, reason: str) -> None:
        whole = {"id": "c1", "function": {"name": "look", "arguments": ""}}
        cut = {"id": "c2", "function": {"name": "look", "arguments": written}}

        first, last = read({"tool_calls": [whole, cut]}, finish_reason=reason).tool_calls

        assert first.arguments_json == ""
        with pytest.raises(json.JSONDecodeError):
            json.loads(last.arguments_json)
        assert last.arguments_json.strip()

    def test_arguments_that_were_written_to_their_end_before_the_cut_stay(self) -> None:
        call = {"id": "c1", "function": {"name": "look", "arguments": '{"a": 1}'}}

        (read_call,) = read({"tool_calls": [call]}, finish_reason="length").tool_calls

        assert read_call.arguments_json == '{"a": 1}'

    def test_a_null_among_them_is_left_out(self) -> None:
        assert read({"tool_calls": [None, "x"]}).tool_calls == ()


class TestMore:
    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ("length", FinishReason.LENGTH),
            ("content_filter", FinishReason.CONTENT_FILTER),
            ("function_call", FinishReason.TOOL_CALLS),
            ("eos", FinishReason.OTHER),
            (None, FinishReason.OTHER),
            ({}, FinishReason.OTHER),
        ],
    )
    def test_finish_reasons(self, said: Any, reason: FinishReason) -> None:
        assert read({"content": "x"}, finish_reason=said).finish_reason is reason

    def test_usage_is_unknown_where_it_is_not_said(self) -> None:
        assert read({"content": "x"}).usage is None
        assert read(
            {"content": "x"}, usage={"prompt_tokens": 3, "completion_tokens": None}
        ).usage == (Usage(3, 0))

    @pytest.mark.parametrize(
        ("told", "usage"),
        [
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 5},
                },
                Usage(9, 7, 4, 5),
            ),
            (
                {"prompt_tokens": 9, "completion_tokens": 7, "prompt_cache_hit_tokens": 6},
                Usage(9, 7, 6),
            ),
            (
                {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99}},
                Usage(9, 0, 9),
            ),
            ({"prompt_tokens": 9, "prompt_tokens_details": [4]}, Usage(9)),
            ({"prompt_tokens": -1, "completion_tokens": 10**30}, Usage(0, 10**9)),
            ({"prompt_tokens": "9", "completion_tokens": 1.5}, Usage()),
        ],
    )
    def test_parts_of_usage_are_read_as_each_server_tells_them(
        self, told: dict[str, Any], usage: Usage
    ) -> None:
        assert read({"content": "x"}, usage=told).usage == usage


class TestNoReply:
    @pytest.mark.parametrize(
        "body", [b"", b"<html>", b'{"choices": [', b"[]", b"null", b"\xff\xfe", b"[" * 100_000]
    )
    def test_what_is_no_object_is_unreadable(self, body: bytes) -> None:
        with pytest.raises(UnreadableReplyError):
            read_reply(body)

    @pytest.mark.parametrize(
        "body", [b"{}", b'{"choices": []}', b'{"choices": [null]}', b'{"choices": [{}]}']
    )
    def test_an_object_without_message_is_an_empty_answer(self, body: bytes) -> None:
        with pytest.raises(EmptyAnswerError):
            read_reply(body)

    @pytest.mark.parametrize(
        ("error", "status"),
        [({"code": 429}, 429), ({"code": "x"}, 500), ("overloaded", 500), ({"code": 7}, 500)],
    )
    def test_an_error_in_its_place_is_told(self, error: Any, status: int) -> None:
        with pytest.raises(ReportedError) as reported:
            read_reply(json.dumps({"error": error}).encode())

        assert reported.value.status == status
