"""Tool calls that a model wrote into its text, as tags or as JSON. Pure.

Read as calls are `<tool_call>` blocks, as Hermes and Qwen write them, and where they name known
tools, the `<function=…>` of Qwen3-Coder without such a block, and JSON that is nothing but calls:
in a fence, or as the whole text. Code in backticks and fences of any other kind is text, so that an
example of a call calls nothing; so is fenced JSON which the model goes on to talk about. What a
model writes after its calls is made up, as it has not seen their results.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.agent.clients.tool_text_functions import WrittenFunctions, functions
from services.agent.clients.written_json import Member, Written, objects
from services.agent.domain.chat import ModelReply, ModelRequest, ToolProtocol
from services.agent.domain.drafts import MAX_TOOL_CALLS
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.common.text import clean

_NAMES: Final = ("name", "function", "tool")
_ARGUMENTS: Final = ("arguments", "parameters", "args")
_ONLY_KEYS: Final = frozenset({*_NAMES, *_ARGUMENTS, "id", "type"})
_BROKEN: Final = "{"

_PLACE = re.compile(
    r"^[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$"
    r"|(?P<tag><tool_call>|<function=)"
    r"|(?<!`)(?P<ticks>`{1,2})(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE,
)
_TAG = re.compile(r"\s*+<tool_call>\s*+(?:```\w*+\s*+)?\[?(?=\s*+\{)")
_ODD_TAG = re.compile(
    r"^<tool_call>((?:(?!</?tool_call>).)*)</tool_call>", re.MULTILINE | re.DOTALL
)
_NEXT_TAG = re.compile(r"</?tool_call>|\Z")
_REST_OF_TAG = re.compile(r"[\s\]}`]*(?:</tool_call>)?")
_WRAPPED = re.compile(
    r"\s*(?:```(?:json)?[ \t]*\n(?P<fenced>.*)\n[ \t]*```"
    r"|<tool_call>(?P<tagged>.*?)(?:</tool_call>)?)\s*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Block:
    """Calls within a text, from `start` to `end`; only tags are calls whatever follows them."""

    start: int
    end: int
    calls: Sequence[ToolCall]
    tagged: bool


def with_calls_of_text(
    reply: ModelReply, request: ModelRequest, protocol: ToolProtocol
) -> ModelReply:
    """The reply with the calls in its text, if it has none of its own, as its tool calls.

    Of a model that is offered its tools natively, only a text that is one call of an offered tool,
    and nothing else, is taken for a call; where none is offered any more, one of a tool that it has
    called before, as a call is no answer.

    Args:
        reply: what the server sent.
        request: what it answers. Where it neither offers tools nor tells of calls, text is text.
        protocol: how the model asks for tools.
    """
    names = {tool.name for tool in request.tools}
    if protocol is ToolProtocol.TAGS or not request.tools:
        names |= {call.name for message in request.messages for call in message.tool_calls}
    if reply.tool_calls or not names:
        return reply
    if protocol is ToolProtocol.NATIVE:
        said, calls = _only_call(reply.text, names)
    else:
        said, calls = _read(reply.text, names)
    return replace(reply, text=said, tool_calls=tuple(calls))


def _only_call(text: str, names: Collection[str]) -> tuple[str, Sequence[ToolCall]]:
    written = functions(text, 0, known=names, most=2, tag_suffices=False)
    if written and len(written.calls) == 1 and not text[written.end :].strip():
        return "", _function_calls(written)
    wrapped = _WRAPPED.fullmatch(text)
    calls = _json_calls((wrapped["fenced"] or wrapped["tagged"] or "") if wrapped else text, names)
    return ("", calls) if len(calls) == 1 else (text, ())


def _read(text: str, names: Collection[str]) -> tuple[str, Sequence[ToolCall]]:
    """What is said before the calls, and the calls."""
    if calls := _json_calls(text, names):
        return "", calls
    taken: list[_Block] = []
    start = len(text)
    for block in reversed(list(_blocks(text, names))):
        if block.tagged or not text[block.end : start].strip():
            taken.insert(0, block)
            start = block.start
    if not taken:
        return text, ()
    calls = [call for block in taken for call in block.calls]
    return text[:start].strip(), calls[:MAX_TOOL_CALLS]


def _blocks(text: str, names: Collection[str]) -> Iterator[_Block]:
    place = count = 0
    while count < MAX_TOOL_CALLS and (found := _PLACE.search(text, place)):
        block = None
        place = found.end()
        if found["tag"]:
            block = _tagged(text, found.start(), names)
        elif found["fence"]:
            closing = _closing(found["fence"]).search(text, place)
            if found["info"].strip().lower() == "json":
                body = text[place : closing.start() if closing else len(text)]
                block = _fenced(body, names)
            place = closing.end() if closing else len(text)
            block = block and replace(block, start=found.start(), end=place)
        if block and block.calls:
            yield block
            place = block.end
            count += len(block.calls)


def _closing(fence: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t>]*{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE)


def _fenced(body: str, names: Collection[str]) -> _Block:
    calls = _tagged(body, 0, names).calls or _json_calls(body, names)
    return _Block(0, len(body), calls, tagged=False)


def _tagged(text: str, start: int, names: Collection[str]) -> _Block:
    """The calls of the tags that follow each other from `start` on."""
    calls: list[ToolCall] = []
    end = start
    while len(calls) < MAX_TOOL_CALLS:
        most = MAX_TOOL_CALLS - len(calls)
        if written := functions(text, end, known=names, most=most, tag_suffices=True):
            calls += _function_calls(written)
            end = written.end
        elif tag := _TAG.match(text, end):
            found, end = _json_in_tag(text, tag.end())
            calls += found
        else:
            break
    if not calls and (odd := _ODD_TAG.match(text, start)):
        return _Block(start, odd.end(), [_call("", odd[1].strip() or _BROKEN)], tagged=True)
    return _Block(start, end, calls, tagged=True)


def _json_in_tag(text: str, start: int) -> tuple[Sequence[ToolCall], int]:
    """The calls of a tag whose content begins at `start`, and the place after it."""
    found = objects(text, start)
    end = found[-1].end
    if not found[-1].whole:
        # A quotation mark that is missing must not swallow the next call.
        closing = _NEXT_TAG.search(text, start)
        end = closing.start() if closing else len(text)
        found = objects(text[start:end])
    rest = _REST_OF_TAG.match(text, end)
    return [_tagged_call(each) for each in found], rest.end() if rest else end


def _function_calls(written: WrittenFunctions) -> Sequence[ToolCall]:
    return [
        _call(each.name, _BROKEN if each.arguments_json is None else each.arguments_json)
        for each in written.calls
    ]


def _tagged_call(written: Written) -> ToolCall:
    """A call, whatever is wrong with it: its result tells the model."""
    written = _unwrapped(written)
    strings = (written.members[key].string for key in _NAMES if key in written.members)
    name = next((string for string in strings if string is not None), "")
    arguments = next((written.members[k] for k in _ARGUMENTS if k in written.members), None)
    if arguments is None:
        # No arguments at all would count as an empty object.
        return _call(name, "" if written.whole else _BROKEN)
    return _call(name, _told(arguments))


def _json_calls(text: str, names: Collection[str]) -> Sequence[ToolCall]:
    """The calls that a JSON object or list consists of; none if any of it is something else."""
    text = text.strip()
    try:
        value = json.loads(text, strict=False) if text[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        return ()
    if not value:
        return ()
    found = [_unwrapped(each) for each in objects(text.removeprefix("["))]
    count = len(value) if isinstance(value, list) else 1
    if len(found) != count or not all(_is_call(each.members, names) for each in found):
        return ()
    return [_tagged_call(each) for each in found]


def _is_call(members: Mapping[str, Member], names: Collection[str]) -> bool:
    """Whether an object is a call and nothing else, such as a description of a tool."""
    named = [members[key].string for key in _NAMES if key in members]
    given = [members[key] for key in _ARGUMENTS if key in members]
    return (
        members.keys() <= _ONLY_KEYS
        and len(named) == len(given) == 1
        and named[0] in names
        and _told(given[0]).lstrip().startswith("{")
    )


def _unwrapped(written: Written) -> Written:
    """A call as OpenAI's API writes it, in {"type": "function", "function": …}, without that."""
    function = written.members.get("function")
    inner = objects(function.raw) if function else ()
    return inner[0] if inner else written


def _told(arguments: Member) -> str:
    if not arguments.whole:
        raw = arguments.raw.strip()
        if raw.count("}") > raw.count("{"):
            raw = raw.removesuffix("}")  # the call's own
        return raw or _BROKEN
    if arguments.string is not None:
        return arguments.string
    return "" if arguments.raw == "null" else arguments.raw


def _call(name: str, arguments_json: str) -> ToolCall:
    return ToolCall(ToolCallId(""), clean(name), clean(arguments_json))
