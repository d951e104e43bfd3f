"""The reply of an OpenAI-compatible server, read with distrust. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from services.agent.clients.model_http import HttpReply
from services.agent.clients.openai_events import completion_of, is_stream
from services.agent.clients.openai_values import arguments, mapping, sequence, text
from services.agent.domain.chat import FinishReason, ModelReply
from services.agent.domain.errors import EmptyAnswerError
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.run_models import Usage
from services.common.text import clean

_MOST_ID_CHARS: Final = 64
_MOST_TOKENS: Final = 10**9
_FINISH_REASONS: Final[Mapping[object, FinishReason]] = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_CUT: Final = {FinishReason.LENGTH, FinishReason.CONTENT_FILTER}
_CUT_ARGUMENTS: Final = "{"
_THOUGHTS = re.compile(r"\A\s*<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)
_THOUGHTS_END = re.compile(r"^[ \t]*</think>[ \t]*(?:\n\s*|\Z)", re.MULTILINE)
_FENCE: Final = "```"


class UnreadableReplyError(Exception):
    """What came back is no completion."""


class ReportedError(Exception):
    """The server reports an error where the reply should be.

    Attributes:
        status: of HTTP, or what an error stands for that came with a status of success; 500 where
            it names none.
        body: what it says.
        retry_after: when it wants to be asked again, as it wrote it; empty where it does not say.
    """

    def __init__(self, status: int, body: object, retry_after: str = "") -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.retry_after = retry_after


def check_status(reply: HttpReply) -> None:
    """Refuse what does not even claim to be a completion.

    Raises:
        ReportedError: the status is none of success.
    """
    if 200 <= reply.status < 300:
        return
    try:
        body = mapping(json.loads(reply.body)) or {}
    except (ValueError, RecursionError):
        body = {}
    error = body.get("error") or body
    raise ReportedError(reply.status, error, reply.headers.get("retry-after", ""))


def read_reply(body: bytes) -> ModelReply:
    """The model's reply, from a whole completion or a stream of its pieces.

    Raises:
        UnreadableReplyError: the body is neither, or breaks off.
        ReportedError: the body is an error, though the status said all is well.
        EmptyAnswerError: the body holds no message.
    """
    completion = mapping(_parsed(body))
    if completion is None:
        raise UnreadableReplyError
    choices = sequence(completion.get("choices"))
    if not choices and completion.get("error"):
        error = completion["error"]
        raise ReportedError(_status(mapping(error) or {}), error)
    choice = mapping(choices[0]) if choices else None
    message = mapping(choice.get("message")) if choice else None
    if choice is None or message is None:
        raise EmptyAnswerError("The model's reply holds no message.")
    thoughts, said = _without_thoughts(_clean(message.get("content")))
    reasoning = _clean(message.get("reasoning_content")) or _clean(message.get("reasoning"))
    finish_reason = _finish_reason(choice.get("finish_reason"))
    return ModelReply(
        text=said or _clean(message.get("refusal")),
        tool_calls=_calls(message.get("tool_calls"), cut=finish_reason in _CUT),
        finish_reason=finish_reason,
        usage=_usage(completion.get("usage")),
        reasoning=reasoning or thoughts,
        model=_clean(completion.get("model")),
    )


def _parsed(body: bytes) -> object:
    try:
        return completion_of(body) if is_stream(body) else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableReplyError from error


def _without_thoughts(said: str) -> tuple[str, str]:
    """Thoughts that a local model wrote before its answer, and the answer.

    Some templates open the thoughts in the prompt, so that the model only closes them. It does so
    on a line of its own; a tag within a line or in a fence is one that the answer speaks of.
    """
    if thoughts := _THOUGHTS.match(said):
        return thoughts[1].strip(), said[thoughts.end() :]
    end = _THOUGHTS_END.search(said)
    if end is None or "<think>" in said[: end.start()] or said[: end.start()].count(_FENCE) % 2:
        return "", said
    return said[: end.start()].strip(), said[end.end() :]


def _calls(value: object, *, cut: bool) -> tuple[ToolCall, ...]:
    """The tool calls; of a reply that was cut short, the last can never be taken for whole."""
    given = (mapping(each) for each in sequence(value))
    calls = [_call(each) for each in given if each is not None]
    if cut and calls and not calls[-1].arguments_json.strip():
        # No arguments at all would count as an empty object.
        calls[-1] = replace(calls[-1], arguments_json=_CUT_ARGUMENTS)
    return tuple(calls)


def _call(call: Mapping[str, object]) -> ToolCall:
    function = mapping(call.get("function")) or {}
    return ToolCall(
        id=ToolCallId(_clean(call.get("id"))[:_MOST_ID_CHARS]),
        name=_clean(function.get("name")),
        arguments_json=clean(arguments(function.get("arguments"))),
    )


def _clean(value: object) -> str:
    return clean(text(value))


def _usage(value: object) -> Usage | None:
    usage = mapping(value)
    if usage is None:
        return None
    read, written = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    of_read = mapping(usage.get("prompt_tokens_details")) or {}
    of_written = mapping(usage.get("completion_tokens_details")) or {}
    # DeepSeek's name for the former, which it had first.
    cached = _count(of_read.get("cached_tokens")) or _count(usage.get("prompt_cache_hit_tokens"))
    thought = _count(of_written.get("reasoning_tokens"))
    return Usage(read, written, min(cached, read), min(thought, written))


def _count(value: object) -> int:
    """A number of tokens that a store can keep; 0 for what is none."""
    return min(max(value, 0), _MOST_TOKENS) if isinstance(value, int) else 0


def _finish_reason(value: object) -> FinishReason:
    return _FINISH_REASONS.get(value if isinstance(value, str) else None, FinishReason.OTHER)


def _status(error: Mapping[str, object]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500
