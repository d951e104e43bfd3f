"""A model server that plays `bench.conversation`: `python -m bench.agent_loop.server PORT`.

The first part of a path is how many milliseconds an answer takes: `/1000/v1/chat/completions`. It
reads no more of a request than it needs, as it shares a machine with those who are measured.
"""

import asyncio
import json
import re
import sys
from typing import Final, cast

import uvloop

from bench.conversation import ANSWER, STEPS, TOOL, arguments, call_id

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MILLISECONDS: Final = re.compile(rb"POST /(\d+)/")
_SAID: Final = re.compile(rb'"role": ?"assistant"')


def _completion(step: int) -> bytes:
    message: dict[str, object] = {"role": "assistant", "content": ANSWER, "refusal": None}
    if step < STEPS - 1:
        function = {"name": TOOL, "arguments": json.dumps(arguments(step))}
        call = {"id": call_id(step), "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
    reason = "stop" if step == STEPS - 1 else "tool_calls"
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    body = json.dumps(completion).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + _HEAD_END + body


_COMPLETIONS: Final = [_completion(step) for step in range(STEPS)]


class _Connection(asyncio.Protocol):
    """One client; it asks, and waits for the answer before it asks again."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class is a transport by what it does alone.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if not end or length is None or len(body) < int(length[1]):
            return
        self._read = b""
        milliseconds = _MILLISECONDS.match(head)
        assert milliseconds is not None
        answer = _COMPLETIONS[len(_SAID.findall(body))]
        if int(milliseconds[1]):
            loop = asyncio.get_running_loop()
            loop.call_later(int(milliseconds[1]) / 1000, self._answer, answer)
        else:
            self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
