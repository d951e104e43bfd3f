"""A model server that says what a test tells it to, over real HTTP on loopback.

    async with scripted_model() as model:
        model.script(calls(("c1", "query_knowledge", '{"query": "backup"}')), says("On b1."))
        ...  # point an OpenAI client at model.base_url
        assert model.requests[0].json["tools"]

One reply of the script answers one request, in order; when the script is used up, `otherwise`
answers, or a 500 that says so. Both plain and streamed requests are served. `model_modes` has the
ways in which a server can misbehave.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
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


class Then(Enum):
    """What becomes of the connection once all is sent."""

    KEEP = auto()
    CLOSE = auto()
    RESET = auto()
    STALL = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    Attributes:
        completion: a chat completion, sent as JSON or, if the request asks for it, as events.
        body: raw bytes to send instead of a completion.
        cut: how much of that there is at all, from 0 to 1.
        times: how often the body is repeated; None repeats it until the client hangs up.
        announced: whether its length is told.
        part: how much of what is announced is sent, from 0 to 1; with None not even headers are.
        then: what becomes of the connection after that.
        piece: how many bytes are written at once; 0 writes all.
        pause: seconds before each further piece.
        after: what must be set before the answer is sent.
    """

    completion: dict[str, Any] | None = None
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    cut: float = 1.0
    times: int | None = 1
    announced: bool = True
    part: float | None = 1.0
    then: Then = Then.KEEP
    piece: int = 0
    pause: float = 0.0
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


def fails(
    status: int, text: str = "scripted failure", *, code: str | None = None, **headers: str
) -> Reply:
    """An error as OpenAI words it; `retry_after="1"` becomes the header of that name."""
    error = {"error": {"message": text, "type": "scripted", "param": None, "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(body=json.dumps(error).encode(), status=status, headers=named)


def raw(body: bytes, **more: Any) -> Reply:
    """Exactly these bytes."""
    return Reply(body=body, **more)


SILENCE = Reply(part=None, then=Then.STALL)
"""The request is taken and never answered."""

HANGS_AFTER_HEADERS = Reply(body=b"{}", part=0, then=Then.STALL)
"""The answer begins and never goes on."""

HANGS_UP = Reply(part=None, then=Then.CLOSE)
"""The connection is closed without an answer."""

FLOOD = Reply(body=b"x" * 65_536, times=None, announced=False)
"""The answer never ends."""

HTML = raw(b"<!doctype html><title>Sign in</title>", content_type="text/html")
"""A page where an answer should be."""

TRUNCATED_JSON = raw(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')
"""An answer that is cut, though its length is right."""

TRUNCATED_BODY = Reply(body=b'{"id": "chatcmpl-1", "choices": []}', part=0.5, then=Then.CLOSE)
"""An answer whose connection breaks before its announced end."""

EMPTY_CHOICES = Reply(completion={"id": "x", "object": "chat.completion", "choices": []})
"""An answer without a message."""


class ScriptedModel:
    """The server's script and what it was asked; made by `scripted_model`.

    Attributes:
        requests: as they arrived.
        otherwise: answers when the script is used up.
        left: how many connections the client closed while they owed it an answer.
        connections: how many there have been.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.otherwise: Script = fails(500, "the script is used up")
        self.left = 0
        self.connections = 0
        self._script: list[Script] = []
        self._news = asyncio.Condition()
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
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: len(self.requests) >= times)

    async def abandoned(self, times: int = 1, *, within: float = 10) -> None:
        """Wait until the client has closed so many connections that still owed it an answer."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: self.left >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                reply = await self._reply(request)
                await _answer(writer, request, reply)
                if reply.then is Then.STALL:
                    await self._until_left(reader)
                if reply.then is Then.RESET:
                    _reset(writer)
                if reply.then is not Then.KEEP or not reply.announced:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _reply(self, request: Request) -> Reply:
        async with self._news:
            self.requests.append(request)
            self._news.notify_all()
        script = self._script.pop(0) if self._script else self.otherwise
        return script if isinstance(script, Reply) else script(request)

    async def _until_left(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read(1)
        async with self._news:
            self.left += 1
            self._news.notify_all()


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


async def _answer(writer: asyncio.StreamWriter, request: Request, reply: Reply) -> None:
    if reply.after is not None:
        await reply.after.wait()
    if reply.part is None:
        return
    body, content_type = _body(request, reply)
    body = body[: int(len(body) * reply.cut)]
    writer.write(_head(reply, content_type, len(body) * (reply.times or 1)))
    body = body[: int(len(body) * reply.part)]
    piece = reply.piece or max(len(body), 1)
    sent = 0
    while reply.times is None or sent < reply.times:
        for start in range(0, len(body), piece):
            if start and reply.pause:
                await asyncio.sleep(reply.pause)
            writer.write(body[start : start + piece])
            await writer.drain()
        sent += 1


def _reset(writer: asyncio.StreamWriter) -> None:
    """Have the connection end with RST once it is closed."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def _head(reply: Reply, content_type: str, length: int) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Scripted", f"content-type: {content_type}"]
    lines += [f"content-length: {length}"] if reply.announced else ["connection: close"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join(lines).encode("latin-1") + _HEADERS_END


def _body(request: Request, reply: Reply) -> tuple[bytes, str]:
    if reply.completion is None:
        return reply.body, reply.content_type
    if not request.json.get("stream"):
        return _json(reply.completion), reply.content_type
    return b"".join(_events(reply.completion)), "text/event-stream"


def _json(value: object) -> bytes:
    """As most servers write it; what UTF-8 lacks is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _events(completion: Mapping[str, Any]) -> Sequence[bytes]:
    head = {**completion, "object": "chat.completion.chunk", "choices": [], "usage": None}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
        for choice in completion["choices"]
        for delta, finish_reason in (
            (_delta(choice["message"]), None),
            ({}, choice["finish_reason"]),
        )
    ]
    chunks.append({**head, "usage": completion.get("usage")})
    return [b"data: " + line + b"\n\n" for line in (*map(_json, chunks), b"[DONE]")]


def _delta(message: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = message.get("tool_calls") or []
    if not wanted:
        return message
    return {**message, "tool_calls": [{"index": i, **call} for i, call in enumerate(wanted)]}
