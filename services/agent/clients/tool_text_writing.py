"""Tools, calls and results told in plain text, for models whose server takes no others. Pure.

The form is the one that Hermes and Qwen models learn, and that many others follow when they are
shown it. `tool_text_reading` reads it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from services.agent.clients.openai_request import function_json, is_object
from services.agent.domain.chat import ChatMessage, ModelRequest, ToolSpec
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.turn.tokens import estimate_tokens
from services.common.text import Json

_BETWEEN: Final = "\n\n"
_RESULT_END: Final = "</tool_response>"
_HARMLESS_END: Final = "&lt;/tool_response>"
_AFTER_RESULTS: Final = (
    "If this does not hold the answer, call another tool. Otherwise answer the question from it "
    "now, in words."
)
_AFTER_LAST_RESULTS: Final = "Answer the question from this now, in words."
# Small models write what they read last: calls, where the form of a call ends the prompt, and made
# up results, where something on results follows it.
_PROMPT: Final = """\
# Tools

You may call one or more of these tools. Each stands on a line of its own, with the JSON Schema of \
its arguments. End your message after the calls; their results come in the next message, in the \
order of the calls. To answer, write no call.
<tools>
{tools}
</tools>

For each call, write a JSON object with the tool's name and its arguments within \
<tool_call></tool_call> tags:
<tool_call>
{{"name": <name>, "arguments": <arguments as a JSON object>}}
</tool_call>"""

PROMPT_TOKENS: Final = estimate_tokens(_PROMPT)
"""About what this costs, beside the tools in it."""


def in_text(request: ModelRequest) -> ModelRequest:
    """The same question without any but plain messages, of which no two neighbours share a role."""
    system = [each for each in request.messages if each.role is Role.SYSTEM]
    others = [each for each in request.messages if each.role is not Role.SYSTEM]
    texts = [each.text for each in system]
    if request.tools:
        texts.append(_described(request.tools))
    prompt = [ChatMessage(Role.SYSTEM, _BETWEEN.join(texts))] if texts else []
    after_results = _AFTER_RESULTS if request.tools else _AFTER_LAST_RESULTS
    plain = _alternating(_all_plain(others, after_results))
    return replace(request, messages=(*prompt, *plain), tools=())


def _described(tools: Sequence[ToolSpec]) -> str:
    return _PROMPT.format(tools="\n".join(_json(function_json(tool)) for tool in tools))


def _all_plain(messages: Sequence[ChatMessage], after_results: str) -> Iterator[ChatMessage]:
    """Each message as a plain one; small models need the line after results to go on from them."""
    for message, following in zip_longest(messages, messages[1:]):
        plain = _plain(message)
        if message.role is Role.TOOL and (following is None or following.role is not Role.TOOL):
            plain = replace(plain, text=f"{plain.text}\n{after_results}")
        yield plain


def _plain(message: ChatMessage) -> ChatMessage:
    if message.role is Role.TOOL:
        text = message.text.replace(_RESULT_END, _HARMLESS_END)
        return ChatMessage(Role.USER, f"<tool_response>\n{text}\n{_RESULT_END}")
    calls = [_call(call) for call in message.tool_calls]
    text = "\n".join([message.text, *calls] if message.text else calls)
    return replace(message, text=text, tool_calls=()) if calls else message


def _call(call: ToolCall) -> str:
    """A call as the model wrote it; arguments that are no object stand in a string."""
    whole = is_object(call.arguments_json)
    arguments = call.arguments_json.strip() if whole else _json(call.arguments_json)
    return f'<tool_call>\n{{"name": {_json(call.name)}, "arguments": {arguments}}}\n</tool_call>'


def _alternating(messages: Iterable[ChatMessage]) -> Sequence[ChatMessage]:
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1].role is message.role:
            merged[-1] = _together(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _together(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    """Two messages as one."""
    return replace(
        first,
        text=_BETWEEN.join(filter(None, (first.text, second.text))),
        reasoning=_BETWEEN.join(filter(None, (first.reasoning, second.reasoning))),
    )


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
