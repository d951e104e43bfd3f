"""A model server that says what a test tells it to, over real HTTP on loopback.

    async with scripted_model() as model:
        model.script(calls(("c1", "query_knowledge", '{"query": "backup"}')), says("On b1."))
        ...  # point an OpenAI client at model.base_url
        assert model.requests[0].json["tools"]

One reply of the script answers one request, in order; when the script is used up, `otherwise`
answers, or a 500 that says so. Both plain and streamed requests are served.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

Call = tuple[str, str, str]
"""A tool call: id, name, arguments as the model writes them."""

_HEADERS_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    json: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    Attributes:
        completion: a chat completion, sent as JSON or, if the request asks for it, as events.
        body: raw bytes to send instead of a completion.
        piece: how many bytes are written at once; 0 writes all.
        missing_bytes: how many more bytes than it sends the reply announces before it hangs up.
        headers_only: whether nothing follows the headers, while the connection stays open.
        endless: whether the body is repeated until the client hangs up.
        silent: whether nothing at all is sent, while the connection stays open.
        hang_up: whether the connection is closed without an answer.
        after: what must be set before the answer is sent.
    """

    completion: dict[str, Any] | None = None
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    piece: int = 0
    missing_bytes: int = 0
    headers_only: bool = False
    endless: bool = False
    silent: bool = False
    hang_up: bool = False
    after: asyncio.Event | None = None

    def waiting_for(self, event: asyncio.Event) -> "Reply":
        """The same, but not before `event` is set."""
        return replace(self, after=event)


Script = Reply | Callable[[Request], Reply]


def says(text: str | None, **more: Any) -> Reply:
    """An answer without tool calls."""
    return message({"content": text}, **more)


def calls(*tool_calls: Call, text: str | None = None, **more: Any) -> Reply:
    """An answer that asks for tools."""
    wanted = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, name, arguments in tool_calls
    ]
    more.setdefault("finish_reason", "tool_calls")
    return message({"content": text, "tool_calls": wanted}, **more)


def message(
    fields: Mapping[str, Any],
    *,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (10, 5),
) -> Reply:
    """An answer whose assistant message has exactly these fields."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", **fields},
        "finish_reason": finish_reason,
    }
    completion: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }
    if usage is not None:
        completion["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return Reply(completion=completion)


def fails(status: int, text: str = "scripted failure", **headers: str) -> Reply:
    """An error as OpenAI words it; `retry_after="1"` becomes the header of that name."""
    error = {"error": {"message": text, "type": "scripted", "param": None, "code": None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(body=json.dumps(error).encode(), status=status, headers=named)


def raw(body: bytes, **more: Any) -> Reply:
    """Exactly these bytes."""
    return Reply(body=body, **more)


SILENCE = Reply(silent=True)
"""The request is taken and never answered."""

HANGS_AFTER_HEADERS = Reply(body=b"{}", headers_only=True)
"""The answer begins and never goes on."""

HANGS_UP = Reply(hang_up=True)
"""The connection is closed without an answer."""

FLOOD = Reply(body=b"x" * 65_536, endless=True)
"""The answer never ends."""

HTML = raw(b"<!doctype html><title>Sign in</title>", content_type="text/html")
"""A page where an answer should be."""

TRUNCATED_JSON = raw(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')
"""An answer that is cut, though its length is right."""

TRUNCATED_BODY = Reply(body=b'{"id": "chatcmpl-1", ', missing_bytes=500)
"""An answer whose connection breaks before its announced end."""

EMPTY_CHOICES = raw(b'{"id": "x", "object": "chat.completion", "choices": []}')
"""An answer without a message."""


class ScriptedModel:
    """The server's script and what it was asked; made by `scripted_model`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.otherwise: Script = fails(500, "the script is used up")
        self._script: list[Script] = []
        self._asked = asyncio.Condition()
        self._port = 0

    @property
    def base_url(self) -> str:
        """Where an OpenAI client finds it."""
        return f"http://127.0.0.1:{self._port}/v1"

    def script(self, *replies: Script) -> None:
        """Queue replies, one for each request to come."""
        self._script.extend(replies)

    async def asked(self, times: int, *, within: float = 10) -> None:
        """Wait until so many requests have arrived."""
        async with asyncio.timeout(within), self._asked:
            await self._asked.wait_for(lambda: len(self.requests) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                if not await _answer(writer, request, await self._reply(request)):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _reply(self, request: Request) -> Reply:
        async with self._asked:
            self.requests.append(request)
            self._asked.notify_all()
        script = self._script.pop(0) if self._script else self.otherwise
        return script if isinstance(script, Reply) else script(request)


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModel]:
    """The server, on a port of its own, with an empty script."""
    model = ScriptedModel()
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await model._serve(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    model._port = server.sockets[0].getsockname()[1]
    try:
        yield model
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(_HEADERS_END)
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, colon, value in (each.partition(":") for each in rest)
        if colon
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line.split(" ")[1], headers, json.loads(body) if body else {})


async def _answer(writer: asyncio.StreamWriter, request: Request, reply: Reply) -> bool:
    """Send the reply; whether the connection can take another request."""
    if reply.after is not None:
        await reply.after.wait()
    if reply.hang_up:
        return False
    if reply.silent:
        await _until_gone(writer)
        return False
    body, content_type = _body(request, reply)
    length = len(body) + reply.missing_bytes
    writer.write(_head(reply, content_type, None if reply.endless else length))
    if reply.headers_only:
        await _until_gone(writer)
        return False
    piece = reply.piece or max(len(body), 1)
    for start in range(0, len(body), piece):
        writer.write(body[start : start + piece])
        await writer.drain()
    while reply.endless:
        writer.write(body)
        await writer.drain()
    return reply.missing_bytes == 0


async def _until_gone(writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    await writer.wait_closed()


def _head(reply: Reply, content_type: str, length: int | None) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Scripted", f"content-type: {content_type}"]
    lines += [f"content-length: {length}"] if length is not None else ["connection: close"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join(lines).encode("latin-1") + _HEADERS_END


def _body(request: Request, reply: Reply) -> tuple[bytes, str]:
    if reply.completion is None:
        return reply.body, reply.content_type
    if not request.json.get("stream"):
        return json.dumps(reply.completion, ensure_ascii=False).encode(), reply.content_type
    return b"".join(_events(reply.completion)), "text/event-stream"


def _events(completion: Mapping[str, Any]) -> Sequence[bytes]:
    choice = completion["choices"][0]
    wanted = choice["message"].get("tool_calls") or []
    delta = {**choice["message"]}
    if wanted:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(wanted)]
    head = {**completion, "object": "chat.completion.chunk", "usage": None}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**head, "choices": [], "usage": completion.get("usage")},
    ]
    lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return [f"data: {line}\n\n".encode() for line in (*lines, "[DONE]")]
