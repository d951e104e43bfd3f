"""What a server says, without what would make the SDK refuse all of it.

The SDK takes a list of tools or a result whole or not at all. Here, an entry that is no tool is
left out, a schema without a type gets the only type that it may have, and content of an unknown
kind is named in its place; members that nobody reads are dropped.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from services.common.text import Json, clean

_KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_READ: Final = ("name", "description", "inputSchema")
_UNREAD: Final = ("annotations", "_meta", "icons")
_MOST_KIND = 64


class _Stream(Protocol):
    async def receive(self) -> SessionMessage | Exception:
        """The next message."""

    async def aclose(self) -> None:
        """End it."""

    async def __anext__(self) -> SessionMessage | Exception: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...


class Tidied:
    """A stream of a server's messages; satisfies the SDK's `ReadStream`."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return _tidied(await self._stream.receive())

    async def aclose(self) -> None:
        """End the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _tidied(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


def tidied(result: Mapping[str, Json]) -> dict[str, Json]:
    """A result of any request, tidied where it is a list of tools or what a tool gave."""
    tidy = {**result}
    if isinstance(tools := result.get("tools"), list):
        kept = [tool for each in tools if (tool := _tool(each)) is not None]
        tidy["tools"] = kept
        if len(kept) < len(tools):
            log = structlog.get_logger("mcp")
            log.warning("MCP server lists what is no tool", left_out=len(tools) - len(kept))
    if isinstance(content := result.get("content"), list):
        tidy["content"] = [_block(each) for each in content]
    return tidy


def _tidied(message: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
        message.message.result = tidied(message.message.result)
    return message


def _tool(entry: Json) -> dict[str, Json] | None:
    if not isinstance(entry, Mapping):
        return None
    tool = {key: entry[key] for key in _READ if entry.get(key) is not None}
    schema = tool.setdefault("inputSchema", {})
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("description", ""), str):
        return None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return None
    return {**tool, "inputSchema": {**schema, "type": "object"}}


def _block(block: Json) -> Json:
    if not isinstance(block, Mapping):
        return block
    kind = block.get("type")
    if isinstance(kind, str) and kind not in _KINDS:
        return {"type": "text", "text": f"[{clean(kind)[:_MOST_KIND]}: not shown]"}
    return {key: value for key, value in block.items() if key not in _UNREAD}
