"""Makes what models and tools wrote fit to be stored: clean, within the limits, cuts marked.

A run must not die of a NUL or of a reply that is too large; what is lost is said in the message.
Together the limits keep every message below 3 MiB on the wire, so that a page always holds one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from services.agent.domain.messages import Citation, Draft, ToolCall, Whole
from services.agent.domain.models import ToolCallId
from services.common.text import Json, clean

MAX_TEXT_BYTES: Final = 1024 * 1024
MAX_TOOL_CALLS: Final = 128
MAX_ARGUMENTS_BYTES: Final = 512 * 1024
"""Of all calls of one message together."""

MAX_NAME_BYTES: Final = 256
"""Of a call's id and of a tool's name."""

MAX_CITATIONS_BYTES: Final = 256 * 1024
MAX_METADATA_BYTES: Final = 512 * 1024

_MAX_METADATA_TEXT_BYTES = 64 * 1024
_MAX_SOURCE_BYTES = 4096
_BASE_BYTES = 256  # ids, sequence, time, role and what stands between the fields
_NODE_BYTES = 16  # what one value or key costs beside its text, at most


def fit(draft: Draft) -> Draft:
    """The draft as it can be stored; the same one where nothing had to be changed."""
    metadata = dict(draft.metadata)
    calls = _fit_calls(draft.tool_calls)
    if len(calls) < len(draft.tool_calls):
        metadata["dropped_tool_calls"] = len(draft.tool_calls) - len(calls)
    citations = _fit_citations(draft.citations)
    if len(citations) < len(draft.citations):
        metadata["dropped_citations"] = len(draft.citations) - len(citations)
    return replace(
        draft,
        text=cut(draft.text, MAX_TEXT_BYTES),
        tool_calls=calls,
        tool_call_id=None if draft.tool_call_id is None else fit_id(draft.tool_call_id),
        tool_name=None if draft.tool_name is None else _name(draft.tool_name),
        citations=citations,
        metadata=_fit_metadata(metadata),
        whole=None if draft.whole is None else _fit_whole(draft.whole),
    )


def cut(text: str, most: int) -> str:
    """The text, cleaned and at most `most` bytes long; where it was longer, a mark says so."""
    raw = clean(text).encode()
    if len(raw) <= most:
        return raw.decode()
    mark = f"\n[cut here: {len(raw)} bytes in all]"
    return raw[: max(0, most - len(mark))].decode(errors="ignore") + mark[:most]


def fit_id(identifier: str, mark: str = "") -> ToolCallId:
    """The id of a call as it can be stored, with a mark at its end."""
    return ToolCallId(_name(identifier, room=MAX_NAME_BYTES - len(mark)) + mark)


def kept_size(draft: Draft) -> int:
    """What a message takes on the wire and what is kept beside it, in bytes or about so."""
    full = draft.metadata.get("full_chars")
    return wire_size(draft) + (min(full, MAX_TEXT_BYTES) if isinstance(full, int) else 0)


def wire_size(draft: Draft) -> int:
    """What a message takes on the wire, in bytes, rather more than less."""
    size = _BASE_BYTES + len(draft.text.encode()) + _json_size(draft.metadata)
    size += sum(_call_size(call) for call in draft.tool_calls)
    size += sum(_citation_size(citation) for citation in draft.citations)
    return size + 2 * MAX_NAME_BYTES


def _fit_whole(whole: Whole) -> Whole:
    """The whole as it can be stored; what finds no room is left out, which `full_chars` shows."""
    text = clean(whole.text[:MAX_TEXT_BYTES]).encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
    return replace(whole, text=text, source=cut(whole.source, _MAX_SOURCE_BYTES))


def _fit_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    room = MAX_ARGUMENTS_BYTES
    fitting: dict[ToolCallId, ToolCall] = {}
    for place, call in enumerate(calls[:MAX_TOOL_CALLS], start=1):
        identifier = fit_id(call.id)
        if not identifier or identifier in fitting:
            identifier = ToolCallId(f"{identifier or 'call'}#{place}")
        arguments = cut(call.arguments_json, room)
        room -= len(arguments.encode())
        fitting[identifier] = ToolCall(identifier, _name(call.name), arguments)
    return tuple(fitting.values())


def _fit_citations(citations: Sequence[Citation]) -> tuple[Citation, ...]:
    room = MAX_CITATIONS_BYTES
    fitting = []
    for citation in citations:
        cleaned = replace(
            citation,
            label=clean(citation.label),
            document_name=clean(citation.document_name),
            heading_path=tuple(clean(heading) for heading in citation.heading_path),
        )
        room -= _citation_size(cleaned)
        if room < 0:
            break
        fitting.append(cleaned)
    return tuple(fitting)


def _fit_metadata(metadata: Mapping[str, Json]) -> dict[str, Json]:
    """Keeps the smallest entries where not all fit, so that one huge value drops alone."""
    entries = {_name(key): _fit_json(value) for key, value in metadata.items()}
    room = MAX_METADATA_BYTES - _BASE_BYTES
    if _json_size(entries) <= room:
        return entries
    kept = set[str]()
    for key, value in sorted(entries.items(), key=lambda entry: _json_size(entry[1])):
        room -= _json_size({key: value})
        if room >= 0:
            kept.add(key)
    fitting = {key: value for key, value in entries.items() if key in kept}
    if len(kept) < len(entries):
        fitting["dropped_metadata"] = len(entries) - len(kept)
    return fitting


def _fit_json(value: Json) -> Json:
    match value:
        case str():
            return cut(value, _MAX_METADATA_TEXT_BYTES)
        case Mapping():
            return {clean(key): _fit_json(item) for key, item in value.items()}
        case Sequence():
            return [_fit_json(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _json_size(value: Json) -> int:
    match value:
        case str():
            return _NODE_BYTES + len(value.encode())
        case Mapping():
            entries = value.items()
            return _NODE_BYTES + sum(_json_size(key) + _json_size(item) for key, item in entries)
        case Sequence():
            return _NODE_BYTES + sum(_json_size(item) for item in value)
        case _:
            return _NODE_BYTES


def _call_size(call: ToolCall) -> int:
    return 3 * _NODE_BYTES + sum(
        len(text.encode()) for text in (call.id, call.name, call.arguments_json)
    )


def _citation_size(citation: Citation) -> int:
    texts = (citation.label, citation.document_name, *citation.heading_path)
    return _BASE_BYTES + sum(_NODE_BYTES + len(text.encode()) for text in texts)


def _name(text: str, *, room: int = MAX_NAME_BYTES) -> str:
    return clean(text).encode()[:room].decode(errors="ignore")
