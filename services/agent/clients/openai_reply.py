"""The reply of an OpenAI-compatible server, read with distrust. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from services.agent.clients.openai_events import completion_of, is_stream
from services.agent.domain.chat import FinishReason, ModelReply
from services.agent.domain.errors import EmptyAnswerError
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.run_models import Usage
from services.common.text import clean

_MOST_ID_CHARS: Final = 64
_FINISH_REASONS: Final[Mapping[object, FinishReason]] = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_THOUGHTS = re.compile(r"\A\s*<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)


class UnreadableReplyError(Exception):
    """What came back is no completion."""


class ReportedError(Exception):
    """The server reports an error where the reply should be.

    Attributes:
        status: the HTTP status that it stands for; 500 where it names none.
        body: what it says.
    """

    def __init__(self, status: int, body: object) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def read_reply(body: bytes) -> ModelReply:
    """The model's reply, from a whole completion or a stream of its pieces.

    Raises:
        UnreadableReplyError: the body is neither, or breaks off.
        ReportedError: the body is an error, though the status said all is well.
        EmptyAnswerError: the body holds no message.
    """
    completion = _mapping(_parsed(body))
    if completion is None:
        raise UnreadableReplyError
    choices = _sequence(completion.get("choices"))
    if not choices and completion.get("error"):
        error = completion["error"]
        raise ReportedError(_status(_mapping(error) or {}), error)
    choice = _mapping(choices[0]) if choices else None
    message = _mapping(choice.get("message")) if choice else None
    if choice is None or message is None:
        raise EmptyAnswerError("The model's reply holds no message.")
    thoughts, text = _without_thoughts(_text(message.get("content")))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    return ModelReply(
        text=text or _text(message.get("refusal")),
        tool_calls=tuple(_calls(message.get("tool_calls"))),
        finish_reason=_finish_reason(choice.get("finish_reason")),
        usage=_usage(completion.get("usage")),
        reasoning=reasoning or thoughts,
        model=_text(completion.get("model")),
    )


def _parsed(body: bytes) -> object:
    try:
        return completion_of(body) if is_stream(body) else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableReplyError from error


def _without_thoughts(text: str) -> tuple[str, str]:
    """Thoughts that a local model wrote before its answer, and the answer."""
    thoughts = _THOUGHTS.match(text)
    return (thoughts[1].strip(), text[thoughts.end() :]) if thoughts else ("", text)


def _calls(value: object) -> list[ToolCall]:
    calls = [_mapping(each) for each in _sequence(value)]
    return [_call(each) for each in calls if each is not None]


def _call(call: Mapping[str, object]) -> ToolCall:
    function = _mapping(call.get("function")) or {}
    return ToolCall(
        id=ToolCallId(_text(call.get("id"))[:_MOST_ID_CHARS]),
        name=_text(function.get("name")),
        arguments_json=_arguments(function.get("arguments")),
    )


def _arguments(value: object) -> str:
    """Arguments as text; some servers send them as the object they stand for."""
    if value is None or isinstance(value, str):
        return clean(value or "")
    return clean(json.dumps(value, ensure_ascii=False))


def _text(value: object) -> str:
    """A text, or the texts of its parts."""
    if isinstance(value, str):
        return clean(value)
    parts = [_mapping(part) for part in _sequence(value)]
    return "".join(clean(str(part["text"])) for part in parts if part and part.get("text"))


def _usage(value: object) -> Usage | None:
    usage = _mapping(value)
    if usage is None:
        return None
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def _count(value: object) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _finish_reason(value: object) -> FinishReason:
    return _FINISH_REASONS.get(value if isinstance(value, str) else None, FinishReason.OTHER)


def _status(error: Mapping[str, object]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, dict) else None


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
