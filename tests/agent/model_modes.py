"""The ways in which a model's server can behave, by name; T-D16 goes through all of them.

    model.otherwise = MODES["503"]

Each is what the server answers to any request. Where an answer is a completion it comes plain or
streamed, as the request asks for.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.agent.scripted_model import (
    EMPTY_CHOICES,
    FLOOD,
    HANGS_UP,
    HTML,
    SILENCE,
    TRUNCATED_JSON,
    Reply,
    Request,
    Script,
    Then,
    calls,
    fails,
    message,
    raw,
    says,
)

ANSWER: Final = "The backup is on b1."

_OK: Final = says(ANSWER)
_MEGABYTE: Final = 1024 * 1024
_TOO_LONG: Final = "This model's maximum context length is 8192 tokens, but you sent 9000."
_ORDER: Final = re.compile(r"ORDER: (\w+) (\{.*?\})")


def looping(request: Request) -> Reply:
    """Asks for a tool every time, each time for something else."""
    step = len(request.json["messages"])
    return calls((f"c{step}", "look", json.dumps({"what": f"step {step}"})))


def obedient(request: Request) -> Reply:
    """Does whatever any text in its context orders.

    An order is a line such as `ORDER: look {"what": "x"}`, wherever it stands: in the user's words,
    a document, a tool's result or its description. Each is obeyed once, all at the same time.
    """
    done = {
        (call["function"]["name"], call["function"]["arguments"])
        for said in request.json["messages"]
        for call in said.get("tool_calls") or ()
    }
    orders = [each for text in _texts(request.json) for each in _ORDER.findall(text)]
    wanted = [order for order in dict.fromkeys(orders) if order not in done]
    if not wanted:
        return says("I did as I was told.")
    return calls(*((f"c{i}", name, text) for i, (name, text) in enumerate(wanted, len(done))))


def tagged(name: str, arguments: str) -> str:
    """A call as a model writes it into its text."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def looping_in_tags(request: Request) -> Reply:
    """The same as `looping`, in its text."""
    step = len(request.json["messages"])
    return says(tagged("look", json.dumps({"what": f"step {step}"})))


def obedient_in_tags(request: Request) -> Reply:
    """The same as `obedient`, in its text."""
    said = "\n".join(_texts(request.json["messages"]))
    wanted = [tagged(*order) for order in dict.fromkeys(_ORDER.findall(said))]
    left = [each for each in wanted if each not in said]
    return says("\n".join(left) if left else "I did as I was told.")


def redirecting(url: str) -> Reply:
    """Sends the client elsewhere."""
    return Reply(status=307, headers={"location": url})


def _texts(value: Any) -> Iterator[str]:
    """Every text of a request's messages and tools."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)


MODES: Final[Mapping[str, Script]] = {
    "ok": _OK,
    "429": fails(429),
    "429 with Retry-After": fails(429, retry_after="1"),
    "500": fails(500),
    "503": fails(503),
    "hangs before headers": SILENCE,
    "hangs before the first byte": replace(_OK, part=0, then=Then.STALL),
    "hangs mid-reply": replace(_OK, part=0.5, then=Then.STALL),
    "trickles": replace(_OK, piece=1, pause=0.05),
    "hangs up": HANGS_UP,
    "resets mid-reply": replace(_OK, part=0.5, then=Then.RESET),
    "HTML with 200": HTML,
    "truncated JSON": TRUNCATED_JSON,
    "truncated reply": replace(_OK, cut=0.5),
    "invalid tool JSON": calls(("c1", "look", '{"what": ')),
    "unknown tool": calls(("c1", "no_such_tool", "{}")),
    "two calls with one id": calls(
        ("c1", "look", '{"what": "a"}'), ("c1", "look", '{"what": "b"}')
    ),
    "empty choices": EMPTY_CHOICES,
    "no usage": says(ANSWER, usage=None),
    "50 MB": raw(b"x" * _MEGABYTE, times=50),
    "50 MB unannounced": raw(b"x" * _MEGABYTE, times=50, announced=False),
    "flood": FLOOD,
    "NUL and surrogates": says("a\0b\ud800c"),
    "text in parts": message(
        {"content": [{"type": "text", "text": each} for each in ("On ", "b1.")]}
    ),
    "cut in the arguments": calls(("c1", "look", '{"what": "x'), finish_reason="length"),
    "cut before the arguments": calls(("c1", "look", ""), finish_reason="length"),
    "error with 200": raw(b'{"error": {"message": "overloaded", "code": 503}}'),
    "refusal with 200": raw(b'{"error": {"message": "no such model", "code": 404}}'),
    "redirect": redirecting("http://127.0.0.1:1/v1/chat/completions"),
    "endless tool loop": looping,
    "context too long": fails(400, _TOO_LONG, code="context_length_exceeded"),
    "obedient": obedient,
    **{str(status): fails(status) for status in (400, 401, 403, 404, 422)},
    **{str(status): fails(status) for status in (408, 409, 425)},
}

_FUNCTION: Final = "<tool_call>\n<function=look>\n<parameter=what>\nx"

IN_TAGS: Final[Mapping[str, Script]] = {
    "one call": says(tagged("look", '{"what": "x"}')),
    "a function": says(f"{_FUNCTION}\n</parameter>\n</function>\n</tool_call>"),
    "JSON alone": says('{"name": "look", "arguments": {"what": "x"}}'),
    "thoughts and a call": says("Hm.\n</think>\n" + tagged("look", '{"what": "x"}')),
    "equal calls": says("\n".join([tagged("look", '{"what": "x"}')] * 2)),
    "invalid tool JSON": says(
        '<tool_call>\n{"name": "look", "arguments": {"what": }}\n</tool_call>'
    ),
    "no JSON": says("<tool_call>look x</tool_call>"),
    "unknown tool": says(tagged("no_such_tool", "{}")),
    "no name": says('<tool_call>{"arguments": {}}</tool_call>'),
    "cut in the arguments": says(
        '<tool_call>\n{"name": "look", "arguments": {"what": "x', finish_reason="length"
    ),
    "cut before the arguments": says('<tool_call>\n{"name": "look", ', finish_reason="length"),
    "a function cut in a value": says(_FUNCTION, finish_reason="length"),
    "a function cut before its end": says(f"{_FUNCTION}\n</parameter>", finish_reason="length"),
}
"""The ways in which a model without native calls can ask for the tool `look`."""
