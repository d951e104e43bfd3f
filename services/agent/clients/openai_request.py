"""A question to a model as OpenAI's chat completions API takes it. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from services.agent.domain.chat import ChatMessage, ModelRequest, ToolSpec
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import ModelOptions
from services.common.text import Json

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MOST_NAME_CHARS: Final = 64
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one server's API differs.

    Attributes:
        send_reasoning: an assistant's thoughts must come back with its messages.
        stream: replies are asked for in pieces; some models are served in no other way.
        max_tokens_field: bounds a reply; OpenAI's own newer models refuse the older name.
    """

    send_reasoning: bool = False
    stream: bool = False
    max_tokens_field: str = "max_tokens"


def shape_request(request: ModelRequest, *, model: str, dialect: Dialect) -> dict[str, Json]:
    """The JSON body of a request.

    Args:
        request: the question.
        model: what the provider calls the model.
        dialect: how its API differs.
    """
    body: dict[str, Json] = {
        "model": model,
        "messages": [_message(message, dialect) for message in request.messages],
        **_options(request.options, dialect),
    }
    if request.tools:
        body["tools"] = [function_json(tool) for tool in request.tools]
    if dialect.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def encoded(body: Mapping[str, Json]) -> bytes:
    """The body as it is sent; what UTF-8 lacks is replaced."""
    return _ENCODER.encode(body).encode("utf-8", errors="replace")


def _message(message: ChatMessage, dialect: Dialect) -> Mapping[str, Json]:
    match message.role:
        case Role.SYSTEM | Role.USER:
            return {"role": message.role.value, "content": message.text}
        case Role.TOOL:
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
        case Role.ASSISTANT:
            return _assistant(message, dialect)
        case _:
            assert_never(message.role)


def _assistant(message: ChatMessage, dialect: Dialect) -> Mapping[str, Json]:
    """Content may be null only where tools are called; some servers refuse "" there instead."""
    said: dict[str, Json] = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        said["content"] = message.text or None
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    if dialect.send_reasoning and message.reasoning:
        said["reasoning_content"] = message.reasoning
    return said


def _call(call: ToolCall) -> Mapping[str, Json]:
    """A call as servers take it, however it was written.

    Some refuse every question of a conversation that holds arguments which are no JSON object, or a
    name that no tool may have. The model is told what was wrong by the call's result.
    """
    name = _NO_NAME.sub("_", call.name)[:_MOST_NAME_CHARS] or "_"
    arguments = call.arguments_json if is_object(call.arguments_json) else "{}"
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}}


def is_object(text: str) -> bool:
    """Whether a text is one JSON object and nothing else."""
    try:
        return isinstance(_DECODER.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# Made once: `json.loads` would make a new one for every call of a conversation, at every step.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def function_json(tool: ToolSpec) -> Mapping[str, Json]:
    """A tool as it is offered."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        },
    }


def _options(options: ModelOptions, dialect: Dialect) -> dict[str, Json]:
    given: Mapping[str, Json] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        dialect.max_tokens_field: options.max_output_tokens,
        "stop": list(options.stop) or None,
        "seed": options.seed,
    }
    return {name: value for name, value in given.items() if value is not None}
