"""Servers that stream and do nothing else: `python -m bench.stream.servers (grpc|sse) PORT`.

Each takes commands on stdin: `COUNT TICKS SECONDS` sends so many messages in each of so many ticks,
which are so long, to one open stream after the other. A message is what a gateway sends for one of
500 characters, which begin with the time at which it was made.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop
from chatmind.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc, message_pb2
from grpc import aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from services.common.ids import new_id
from services.common.tasks import background_tasks
from tests.servicers import incomplete

TEXT_CHARACTERS = 500


def stamped_text() -> str:
    """A text that tells when it was made."""
    return str(time.monotonic_ns()).ljust(TEXT_CHARACTERS, "x")


class Source:
    """Makes messages, and gives them to whoever streams them."""

    def __init__(self) -> None:
        self._queues: list[asyncio.Queue[tuple[int, str]]] = []
        self._sequences = itertools.count(1)

    @contextmanager
    def opened(self) -> Iterator[asyncio.Queue[tuple[int, str]]]:
        """The queue of a new stream."""
        queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._queues.append(queue)
        try:
            yield queue
        finally:
            self._queues.remove(queue)

    async def obey(self) -> None:
        """Do what stdin says, to its end."""
        loop, commands = asyncio.get_running_loop(), asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        async for line in commands:
            count, ticks, seconds = line.split()
            await self._send(int(count), int(ticks), float(seconds))

    async def _send(self, count: int, ticks: int, seconds: float) -> None:
        now = asyncio.get_running_loop().time
        began, queues = now(), itertools.cycle(self._queues)
        for tick in range(ticks):
            for queue in itertools.islice(queues, count):
                queue.put_nowait((next(self._sequences), stamped_text()))
            await asyncio.sleep(began + (tick + 1) * seconds - now())


class BareServicer(gateway_service_pb2_grpc.GatewayServiceServicer):
    """The gateway's stream, without anything else that a gateway does."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ids = [new_id() for _ in range(3)]

    async def StreamMessages(  # noqa: N802 - by contract
        self, _: Any, context: Any
    ) -> AsyncIterator[gateway_service_pb2.StreamMessagesResponse]:
        """Send what comes."""
        message_id, session_id, run_id = self._ids
        with self._source.opened() as queue:
            await context.send_initial_metadata(())
            while True:
                sequence, text = await queue.get()
                message = message_pb2.Message(
                    id=message_id,
                    session_id=session_id,
                    run_id=run_id,
                    sequence=sequence,
                    role=message_pb2.Message.ROLE_ASSISTANT,
                    text=text,
                )
                yield gateway_service_pb2.StreamMessagesResponse(
                    message=message, through_sequence=sequence
                )


async def serve_grpc(source: Source, port: int) -> None:
    """A gRPC server with nothing but the stream."""
    server = aio.server()
    gateway_service_pb2_grpc.add_GatewayServiceServicer_to_server(
        incomplete(BareServicer)(source), server
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def serve_sse(source: Source, port: int) -> None:
    """The same as server-sent events."""
    message_id, session_id, run_id = (new_id() for _ in range(3))

    async def events() -> AsyncIterator[str]:
        with source.opened() as queue:
            yield ": open\n\n"
            while True:
                sequence, text = await queue.get()
                message = {
                    "id": message_id,
                    "session_id": session_id,
                    "run_id": run_id,
                    "sequence": sequence,
                    "role": "assistant",
                    "text": text,
                }
                yield f"id: {sequence}\ndata: {json.dumps(message)}\n\n"

    async def stream(_: Request) -> StreamingResponse:
        return StreamingResponse(events(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/", stream)])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", backlog=4096)
    await uvicorn.Server(config).serve()


async def serve(kind: str, port: int) -> None:
    """Serve until the driver is gone."""
    source = Source()
    async with background_tasks() as tasks:
        tasks.start("server", (serve_grpc if kind == "grpc" else serve_sse)(source, port))
        await source.obey()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
