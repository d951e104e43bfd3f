"""A streamed reply, put together to the completion that it stands for. Pure.

Some servers stream whether they are asked to or not, and some models are only served so. The body
is a stream of server-sent events as the WHATWG HTML standard describes them; fragments of a tool
call belong together by their index.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.agent.clients.openai_values import arguments, mapping, sequence, text
from services.common.text import Json

_FIRST_WORDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_DONE: Final = "[DONE]"
_LINE_END = re.compile("\r\n|\n|\r")
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")


def is_stream(body: bytes) -> bool:
    """Whether a body begins as a stream of events does."""
    return body.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_FIRST_WORDS)


def completion_of(body: bytes) -> object:
    """The completion that a stream of events stands for, or the error it carries.

    Raises:
        ValueError: an event holds no JSON object, or the stream broke off before its end.
    """
    merged, ended = _Merged(), False
    for data in _events(body.decode("utf-8-sig")):
        if data == _DONE:
            ended = True
            break
        chunk = mapping(json.loads(data))
        if chunk is None:
            raise ValueError("an event holds no object")
        if chunk.get("error"):
            return chunk
        merged.add(chunk)
    if not ended and merged.finish_reason is None:
        raise ValueError("the stream broke off")
    return merged.completion()


def _events(body: str) -> Iterator[str]:
    """The data of each event; comments and other fields are passed over."""
    data: list[str] = []
    for line in (*_LINE_END.split(body), ""):
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


@dataclass(slots=True)
class _Merged:
    """The first choice of all chunks so far."""

    texts: dict[str, str] = field(default_factory=dict)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str | None = None
    model: str = ""
    usage: Json = None
    begun: bool = False

    def add(self, chunk: Mapping[str, object]) -> None:
        self.usage = mapping(chunk.get("usage")) or self.usage
        self.model = self.model or text(chunk.get("model"))
        for choice in map(mapping, sequence(chunk.get("choices"))):
            if choice and choice.get("index", 0) == 0:
                self.begun = True
                self.finish_reason = text(choice.get("finish_reason")) or self.finish_reason
                self._add_delta(mapping(choice.get("delta")) or {})

    def _add_delta(self, delta: Mapping[str, Json]) -> None:
        for name in _TEXTS:
            self.texts[name] = self.texts.get(name, "") + text(delta.get(name))
        for fragment in map(mapping, sequence(delta.get("tool_calls"))):
            if fragment:
                self._add_call(fragment)

    def _add_call(self, fragment: Mapping[str, Json]) -> None:
        function = mapping(fragment.get("function")) or {}
        call = self.calls.setdefault(self._index(fragment), {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or text(fragment.get("id"))
        call["name"] = call["name"] or text(function.get("name"))
        call["arguments"] += arguments(function.get("arguments"))

    def _index(self, fragment: Mapping[str, Json]) -> int:
        """The fragment's call; where no index is given, an id begins a new one."""
        index = fragment.get("index")
        if isinstance(index, int):
            return index
        newest = max(self.calls, default=-1)
        return newest + 1 if fragment.get("id") or newest < 0 else newest

    def completion(self) -> Mapping[str, Json]:
        message: dict[str, Json] = {name: said or None for name, said in self.texts.items()}
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in sorted(self.calls.items())
        ]
        choice: Json = {"message": message, "finish_reason": self.finish_reason}
        return {
            "model": self.model,
            "choices": [choice] if self.begun else [],
            "usage": self.usage,
        }
