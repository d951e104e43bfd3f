"""A server that is a program: it speaks through its pipes, and ends with everything it started.

It runs in a process group, a session and a folder of its own, and sees only the variables that the
operator names. What it writes is bounded: a message by `MAX_MESSAGE_BYTES`, its standard error by
what the log takes of it. The SDK's own transport bounds neither, and lends programs more variables.
"""

import asyncio
import os
import re
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)

from services.agent.clients.mcp.file import StdioSettings
from services.agent.clients.mcp.surrogates import mended
from services.common.tasks import background_tasks

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""A longer message of a server fails the request that it answers."""

MOST_LOGGED_LINES: Final = 200
"""How many lines of a program's standard error go into the log, while it runs."""

END_GRACE: Final = 1.0
"""Seconds that a program has to end after its input was closed, and again after SIGTERM."""

_CHUNK = 64 * 1024
_EDGE = 1024
_BETWEEN_LOOKS = 0.1
_MOST_LINE_BYTES = 500

# The id of a message that is too long to read, by the members beside it: first, or last.
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,15})'
_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_LAST = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")

Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class UnreadableError(Exception):
    """A server wrote a message that is too long, and that cannot be told apart from others."""


@asynccontextmanager
async def stdio_streams(
    settings: StdioSettings, *, name: str, ended: Callable[[], None]
) -> AsyncIterator[Streams]:
    """The streams of a program that runs as long as the block lasts.

    Args:
        settings: which program.
        name: what the log calls the server.
        ended: called once the program writes no more.

    Raises:
        OSError: the program cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="chatmind-mcp-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            settings.command,
            *settings.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            env={"HOME": folder, "LANG": "C.UTF-8", "TMPDIR": folder, **settings.environment},
            start_new_session=True,
        )
        read_writer, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, write_reader = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with background_tasks() as tasks:
                reading = tasks.start(f"read {name}", _read(process, read_writer, ended))
                tasks.start(f"watch {name}", _watch(process, reading))
                tasks.start(f"write {name}", _write(process, write_reader))
                tasks.start(f"log {name}", _log(process, name))
                async with read_writer, read, write, write_reader:
                    yield read, write
        finally:
            await _end(process)


async def _read(
    process: Process,
    to: MemoryObjectSendStream[SessionMessage | Exception],
    ended: Callable[[], None],
) -> None:
    lines = _Lines()
    try:
        while chunk := await _piece(process.stdout):
            for message in lines.messages(chunk):
                await to.send(SessionMessage(message))
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, UnreadableError):
        pass
    finally:
        ended()
        await to.aclose()


async def _watch(process: Process, reading: asyncio.Task[None]) -> None:
    """Stop reading once the program has ended, though what it started may hold its pipes open.

    `Process.wait` would wait for those, too.
    """
    while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(_BETWEEN_LOOKS)
    await asyncio.wait({reading}, timeout=_BETWEEN_LOOKS)
    reading.cancel()


async def _write(process: Process, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    pipe = process.stdin
    with suppress(OSError, anyio.ClosedResourceError):
        async for each in messages:
            if pipe is not None:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipe.write(text.encode() + b"\n")
                await pipe.drain()


async def _log(process: Process, name: str) -> None:
    """Log what the program says on its standard error, and read on where that is too much."""
    log, left, begun = structlog.get_logger("mcp").bind(server=name), MOST_LOGGED_LINES, b""
    while chunk := await _piece(process.stderr):
        *lines, begun = (begun + chunk).split(b"\n")
        begun = begun[:_MOST_LINE_BYTES]
        for line in lines[:left]:
            text = line[:_MOST_LINE_BYTES].decode(errors="replace").strip()
            log.info("MCP server says", text=text)
        if 0 < left <= len(lines):
            log.warning("MCP server says too much; no more of it is logged")
        left = max(left - len(lines), 0)


async def _piece(stream: asyncio.StreamReader | None) -> bytes:
    """What there is next; nothing at the end."""
    return b"" if stream is None else await stream.read(_CHUNK)


class _Lines:
    """What a program writes, cut into messages."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._head = b""

    def messages(self, chunk: bytes) -> list[JSONRPCMessage]:
        """The messages that this piece completes.

        Raises:
            UnreadableError: one is too long, and it does not show whose answer it is.
        """
        *ends, rest = chunk.split(b"\n")
        messages = []
        for end in ends:
            self._add(end)
            message = self._message()
            if message is not None:
                messages.append(message)
        self._add(rest)
        return messages

    def _add(self, piece: bytes) -> None:
        self._line += piece
        if len(self._line) > MAX_MESSAGE_BYTES:
            # Only its edges are kept, to tell which request it answers.
            self._head = self._head or bytes(self._line[:_EDGE])
            del self._line[:-_EDGE]

    def _message(self) -> JSONRPCMessage | None:
        line, head = bytes(self._line), self._head
        self._line.clear()
        self._head = b""
        if head:
            return _too_long(head, line)
        try:
            return jsonrpc_message_adapter.validate_json(mended(line), by_name=False)
        except ValueError:
            # Many programs write greetings where only messages belong; an answer is no greeting.
            return _failed(line[:_EDGE], line[-_EDGE:], "the answer cannot be read")


def _too_long(head: bytes, tail: bytes) -> JSONRPCMessage:
    failed = _failed(head, tail, f"the answer is over {MAX_MESSAGE_BYTES} bytes")
    if failed is None:
        raise UnreadableError
    return failed


def _failed(head: bytes, tail: bytes, why: str) -> JSONRPCMessage | None:
    """What fails the request that a message answers; None where it does not show which."""
    found = _FIRST.match(head) or _LAST.search(tail)
    if found is None:
        return None
    told = ErrorData(code=INTERNAL_ERROR, message=why)
    return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=told)


async def _end(process: Process) -> None:
    """End the program and all that is left of its process group."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    # Closes the pipes, which what it started may still hold.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way
