import json
from typing import Any

import pytest

from services.agent.clients.openai_events import completion_of, is_stream
from services.agent.clients.openai_reply import ReportedError, UnreadableReplyError, read_reply
from services.agent.domain.chat import FinishReason
from services.agent.domain.errors import EmptyAnswerError
from services.agent.domain.run_models import Usage
from tests.agent.dialogue import CASES, case, tool_call

STREAM = (CASES / "22-stream-deltas" / "stream.txt").read_bytes()


def stream(*chunks: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + end


def delta(finish_reason: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": fields, "finish_reason": finish_reason}
    return {"choices": [choice]}


def fragment(arguments: Any, **more: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"function": {"arguments": arguments}, **more}])


class TestCase22:
    @pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
    def test_the_stream_becomes_the_one_message(self, ends: bytes) -> None:
        expected = case("22-stream-deltas", "expected.json")

        reply = read_reply(STREAM.replace(b"\n", ends))

        assert reply.text == expected["message"]["content"]
        assert list(reply.tool_calls) == [
            tool_call(each) for each in expected["message"]["tool_calls"]
        ]
        assert reply.finish_reason is FinishReason.TOOL_CALLS
        assert reply.usage == Usage(
            expected["usage"]["prompt_tokens"], expected["usage"]["completion_tokens"]
        )


class TestIsStream:
    @pytest.mark.parametrize("body", [STREAM, b"data: {}", b"\xef\xbb\xbfdata:x", b"\n\nid: 1\n"])
    def test_a_stream_is_told_by_its_beginning(self, body: bytes) -> None:
        assert is_stream(body)

    @pytest.mark.parametrize("body", [b"", b'{"data": 1}', b"<html>"])
    def test_anything_else_is_none(self, body: bytes) -> None:
        assert not is_stream(body)


class TestCompletion:
    def test_thoughts_are_put_together_apart_from_the_text(self) -> None:
        body = stream(
            delta(role="assistant", content=None),
            delta(reasoning_content="Hm"),
            delta(reasoning_content=", yes."),
            delta(content="On b1."),
            delta("stop"),
        )

        reply = read_reply(body)

        assert (reply.text, reply.reasoning) == ("On b1.", "Hm, yes.")

    def test_text_that_comes_as_parts_is_put_together(self) -> None:
        body = stream(
            delta(content=[{"type": "text", "text": "On "}]),
            delta(content=[{"type": "text", "text": "b1"}, {"type": "text", "text": "."}]),
            delta("stop", content=[]),
        )

        assert read_reply(body).text == "On b1."

    def test_arguments_given_as_an_object_become_text(self) -> None:
        body = stream(fragment({"a": "备"}, id="x"), delta("tool_calls"))

        (call,) = read_reply(body).tool_calls

        assert json.loads(call.arguments_json) == {"a": "备"}

    def test_fragments_without_index_follow_the_newest_call(self) -> None:
        body = stream(
            fragment('{"a"', id="x"), fragment(": 1}"), fragment("{}", id="y"), delta("tool_calls")
        )

        assert [call.arguments_json for call in read_reply(body).tool_calls] == ['{"a": 1}', "{}"]

    def test_an_id_that_is_repeated_is_taken_once(self) -> None:
        body = stream(
            fragment('{"a"', index=0, id="x"), fragment(": 1}", index=0, id="x"), delta("stop")
        )

        (call,) = read_reply(body).tool_calls

        assert (call.id, call.arguments_json) == ("x", '{"a": 1}')

    def test_other_choices_are_left_aside(self) -> None:
        body = stream(delta(content="a"), delta(index=1, content="b"), delta("stop"))

        assert read_reply(body).text == "a"

    def test_data_over_several_lines_is_one_event(self) -> None:
        body = (
            b'data: {"choices": [{"delta":\ndata: {"content": "a"}, "finish_reason": "stop"}]}\n\n'
        )

        assert read_reply(body).text == "a"

    def test_an_end_without_the_last_blank_line_is_an_end(self) -> None:
        assert read_reply(stream(delta("stop", content="a"), end=b"data: [DONE]")).text == "a"

    @pytest.mark.parametrize(
        "body",
        [
            stream(delta(content="half"), end=b""),
            stream(delta(content="half"), end=b'data: {"choices": [{"del'),
            stream([1]),
            b"data: x\n\n",
            b": only a comment\n\n",
            b"data: \xff\n\n",
        ],
    )
    def test_a_stream_that_breaks_off_is_unreadable(self, body: bytes) -> None:
        with pytest.raises(UnreadableReplyError):
            read_reply(body)

    def test_a_stream_without_any_choice_is_an_empty_answer(self) -> None:
        with pytest.raises(EmptyAnswerError):
            read_reply(stream({"choices": [], "usage": {"prompt_tokens": 1}}))

    def test_an_error_among_the_events_is_told(self) -> None:
        with pytest.raises(ReportedError) as error:
            read_reply(stream(delta(content="half"), {"error": {"code": 503}}))

        assert error.value.status == 503

    def test_what_is_odd_is_passed_over(self) -> None:
        body = stream({"choices": None}, {"choices": [None, {"delta": None}]}, delta("stop"))

        assert completion_of(body)
