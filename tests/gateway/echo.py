"""A service that sends back what it gets, whatever the method, and tells what came with it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from services.common.errors import ServiceError
from services.common.identity import Identity
from services.common.interceptors.authentication import current_identity
from services.gateway.api.methods import methods


class Echo(grpc.GenericRpcHandler):
    """Answers every method of KnowledgeService with the bytes of the request."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.identities: list[Identity] = []
        self.metadata: dict[str, str | bytes] = {}
        self.seconds_left: float | None = None
        self.refusal: ServiceError | None = None
        self.abort: tuple[grpc.StatusCode, str] | None = None
        self.received: list[bytes] = []
        self.completed = 0
        self.hold: asyncio.Event | None = None
        self.seconds = 0.0
        self.ended = asyncio.Event()
        self._shapes = {method.path: method for method in methods()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler of the method's own shape."""
        method = self._shapes.get(handler_call_details.method)
        if method is None or method.owner != "knowledge":
            return None
        self._path = method.path
        if method.streams_out:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        if method.streams_in:
            return grpc.stream_unary_rpc_method_handler(self._upload)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    async def _unary(self, request: bytes, context: Any) -> bytes:
        await self._look(context)
        try:
            await asyncio.sleep(self.seconds)
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.ended.set()
        return request

    async def _stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await self._look(context)
        try:
            for number in range(3):
                yield request + bytes([number])
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.ended.set()

    async def _upload(self, parts: AsyncIterator[bytes], context: Any) -> bytes:
        self.received = []
        await self._look(context)
        try:
            async for part in parts:
                self.received.append(part)
            self.completed += 1
            return b"".join(self.received)
        finally:
            self.ended.set()

    async def _look(self, context: aio.ServicerContext[Any, Any]) -> None:
        self.calls.append(self._path)
        self.identities.append(current_identity())
        self.metadata = dict(context.invocation_metadata() or ())
        self.seconds_left = context.time_remaining()
        if self.refusal is not None:
            raise self.refusal
        if self.abort is not None:
            await context.abort(*self.abort)
