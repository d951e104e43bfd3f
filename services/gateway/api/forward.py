"""Forwards calls to the services behind the gateway: bytes in, bytes out.

A service gets the request, what is left of its deadline, and the caller's identity, but nothing of
the client's own metadata. The client gets the answer, or the status exactly as the service gave it.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NoReturn, TypeAlias

import grpc
from grpc import aio

from services.common.errors import DeadlineExceededError
from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import (
    GRPC_SERVICES,
    Behaviour,
    Context,
    OptionalHandler,
)
from services.common.interceptors.deadline import time_left
from services.common.status import DETAILS_KEY, failure_of
from services.common.tasks import task_group
from services.common.upstream import Upstream
from services.gateway.api.farewell import farewell
from services.gateway.api.methods import Method
from services.gateway.api.streaming import ClientStreams
from services.gateway.domain.errors import DrainingError, ServiceUnavailableError

# Faults of ours: the client's key was accepted, and no service of ours answers UNKNOWN.
_OURS = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNKNOWN}
_SETTLING_LOOKS, _SETTLING_PAUSE = 50, 0.01

_Upload: TypeAlias = "aio.StreamUnaryCall[bytes, bytes]"


class Forwarder(grpc.GenericRpcHandler):
    """Answers the methods of other services by calling them."""

    def __init__(
        self,
        methods: Iterable[Method],
        upstreams: Mapping[str, Upstream],
        *,
        streams: ClientStreams,
        upload_seconds: float,
    ) -> None:
        self._streams = streams
        self._upload_seconds = upload_seconds
        self._handlers = {
            method.path: self._handler(method, upstreams[method.owner])
            for method in methods
            if method.owner in upstreams
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> OptionalHandler:
        """The handler of a method; None if it is not one of theirs."""
        return self._handlers.get(handler_call_details.method)

    def _handler(self, method: Method, upstream: Upstream) -> OptionalHandler:
        if method.streams_out:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, upstream))
        if method.streams_in:
            return grpc.stream_unary_rpc_method_handler(self._upload(method, upstream))
        return grpc.unary_unary_rpc_method_handler(self._unary(method, upstream))

    def _unary(self, method: Method, upstream: Upstream) -> Behaviour:
        ask: aio.UnaryUnaryMultiCallable[bytes, bytes] = upstream.channel.unary_unary(method.path)

        async def forward(request: bytes, context: Context) -> bytes:
            try:
                return await ask(
                    request,
                    timeout=time_left(math.inf),
                    metadata=upstream.calls.metadata(current_identity()),
                )
            except aio.AioRpcError as error:
                await _pass_on(error, context, upstream)

        return forward

    def _stream(self, method: Method, upstream: Upstream) -> Behaviour:
        ask: aio.UnaryStreamMultiCallable[bytes, bytes] = upstream.channel.unary_stream(method.path)

        async def forward(request: bytes, context: Context) -> None:
            answer = b""
            try:
                async with self._streams.open(context) as stream:
                    answers = ask(
                        request,
                        timeout=context.time_remaining(),
                        metadata=upstream.calls.metadata(current_identity()),
                    )
                    try:
                        async for answer in answers:
                            await stream.write(answer)
                    except aio.AioRpcError as error:
                        await _pass_on(error, context, upstream)
                    finally:
                        answers.cancel()
            except DrainingError:
                going = farewell(method.path, request, answer)
                if going is None:
                    raise
                await context.write(going)

        return forward

    def _upload(self, method: Method, upstream: Upstream) -> Behaviour:
        ask: aio.StreamUnaryMultiCallable[bytes, bytes] = upstream.channel.stream_unary(method.path)

        async def forward(parts: AsyncIterator[bytes], context: Context) -> bytes:
            call = ask(
                timeout=context.time_remaining() or self._upload_seconds,
                metadata=upstream.calls.metadata(current_identity()),
            )
            try:
                await _write_all(call, parts)
                return await call
            except aio.AioRpcError as error:
                await _pass_on(error, context, upstream)
            finally:
                call.cancel()

        return forward


class Unserved(grpc.GenericRpcHandler):
    """Takes the methods that nothing else serves; without it they would be answered without a key.

    To be added as the last handler.
    """

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> OptionalHandler:
        """A handler for any method, whatever its shape."""
        if handler_call_details.method.startswith(GRPC_SERVICES):
            return None
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(_: AsyncIterator[bytes], context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "No such method is served.")


async def _write_all(call: _Upload, parts: AsyncIterator[bytes]) -> None:
    """Write the parts one by one, at the pace of the slower side, until the service answers.

    The service may answer before the last part. A write then fails, and grpc.aio gives the call an
    INTERNAL status of its own. If the service's status has arrived by then, it would be lost, so
    the write is cancelled first; if not, it will replace grpc's.
    """
    async with task_group() as group:
        writing = group.create_task(_write(call, parts))

        def stop(_: object) -> None:
            writing.cancel()

        call.add_done_callback(stop)


async def _write(call: _Upload, parts: AsyncIterator[bytes]) -> None:
    try:
        async for part in parts:
            await call.write(part)
        await call.done_writing()
    except (asyncio.InvalidStateError, aio.AioRpcError):
        for _ in range(_SETTLING_LOOKS):
            if await call.code() is not grpc.StatusCode.INTERNAL or await call.trailing_metadata():
                return
            await asyncio.sleep(_SETTLING_PAUSE)


async def _pass_on(error: aio.AioRpcError, context: Context, upstream: Upstream) -> NoReturn:
    """Pass the status on to the client, unless it is about the gateway rather than the client."""
    failure, details = failure_of(error), dict(error.trailing_metadata() or ()).get(DETAILS_KEY)
    if failure.broken:
        raise ServiceUnavailableError(upstream.name) from error
    if details is None and failure.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        raise DeadlineExceededError(f"The {upstream.name} service took too long.") from error
    if failure.code in _OURS:
        raise error
    trailing = () if details is None else ((DETAILS_KEY, details),)
    await context.abort(failure.code, failure.message, trailing_metadata=trailing)
