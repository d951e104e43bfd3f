"""What a server's tool gave, as a model reads it. Pure."""

import json
from collections.abc import Iterator
from typing import Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from services.agent.domain.chat import ToolResult
from services.common.text import clean, clean_json

MAX_RESULT_BYTES: Final = 256 * 1024

_NOTHING = "(The tool gave nothing back.)"
_MOST_NAME = 200


def rendered(result: CallToolResult, server: str) -> ToolResult:
    """The text of a result, with what is no text named in its place, cut to `MAX_RESULT_BYTES`.

    Args:
        result: of a tool's.
        server: whose tool it is; the text is a quotation of it, be it a result or an error.
    """
    parts = [_block(each) for each in result.content]
    if (structured := _structured(result)) is not None:
        parts.append(structured)
    text = _cut("\n\n".join(part for part in parts if part)) or _NOTHING
    source = f"the MCP server {server}"
    if result.is_error:
        return ToolResult(f"Error: {text}", error="failed", source=source)
    return ToolResult(text, source=source)


def _block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return clean(block.text)
        case ImageContent() | AudioContent():
            return _named(block.type, block.mime_type, _decoded_size(block.data))
        case ResourceLink():
            return _named("resource", block.uri, block.mime_type, block.description)
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            return _named("resource", blob.uri, blob.mime_type, _decoded_size(blob.blob))
        case EmbeddedResource(resource=TextResourceContents() as text):
            return f"{_named('resource', text.uri, text.mime_type)}\n{clean(text.text)}"
    return ""


def _structured(result: CallToolResult) -> str | None:
    """The structured content, unless a text says the same."""
    if result.structured_content is None:
        return None
    texts = (block.text for block in result.content if isinstance(block, TextContent))
    if any(value == result.structured_content for value in _values(texts)):
        return None
    return json.dumps(clean_json(result.structured_content), ensure_ascii=False)


def _values(texts: Iterator[str]) -> Iterator[object]:
    for text in texts:
        if text.lstrip().startswith(("{", "[")):
            try:
                yield json.loads(text)
            except (ValueError, RecursionError):
                continue


def _named(kind: str, *facts: str | None) -> str:
    told = [clean(" ".join(fact.split()))[:_MOST_NAME] for fact in facts if fact]
    return f"[{kind}: {', '.join(told)}]"


def _decoded_size(data: str) -> str:
    return f"{len(data.rstrip('=')) * 3 // 4} bytes, not shown"


def _cut(text: str) -> str:
    raw = text.encode()
    if len(raw) <= MAX_RESULT_BYTES:
        return text
    note = f"\n[Cut here: the tool gave {len(raw)} bytes.]"
    return raw[: MAX_RESULT_BYTES - len(note)].decode(errors="ignore") + note
