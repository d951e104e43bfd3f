"""What the interceptors share: running something around a call, whatever its shape."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import grpc
from grpc import aio

GRPC_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""How methods of gRPC's own services begin: health and reflection, which are open to everybody."""

# Strings, because grpc's classes are generic to type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
OptionalHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[OptionalHandler]]"
Behaviour: TypeAlias = "Callable[[Any, Context], Any]"


@dataclass(frozen=True, slots=True)
class Call:
    """An incoming call.

    Attributes:
        method: `/package.Service/Method`.
        metadata: the first value of each key; keys are in lower case.
        streaming: whether either side sends more than one message.
        context: grpc's own.
    """

    method: str
    metadata: dict[str, str | bytes]
    streaming: bool
    context: Context

    @property
    def seconds_left(self) -> float | None:
        """The time to its deadline; None if the client set none."""
        return cast("float | None", self.context.time_remaining())

    @property
    def code(self) -> grpc.StatusCode | None:
        """The status that was set so far; None if none was."""
        return cast("grpc.StatusCode | None", self.context.code())


class AroundInterceptor(aio.ServerInterceptor, ABC):
    """Enters a context around every call; the call's exceptions pass through it."""

    @abstractmethod
    def around(self, call: Call) -> AbstractAsyncContextManager[None]:
        """The context to enter."""

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> OptionalHandler:
        """The handler, wrapped in `around`."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        metadata: dict[str, str | bytes] = {}
        for key, value in handler_call_details.invocation_metadata or ():
            metadata.setdefault(key, value)
        streaming = bool(handler.request_streaming or handler.response_streaming)

        def entered(context: Context) -> AbstractAsyncContextManager[None]:
            return self.around(Call(handler_call_details.method, metadata, streaming, context))

        inner = behaviour_of(handler)

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            async with entered(context), aclosing(responses(inner, request, context)) as answers:
                async for answer in answers:
                    yield answer

        async def unary(request: Any, context: Context) -> Any:
            async with entered(context):
                return await inner(request, context)

        return rebuild(handler, stream if handler.response_streaming else unary)


async def responses(
    behaviour: Behaviour, request: Any, context: Context
) -> AsyncGenerator[Any, None]:
    """The responses of a streaming behaviour, be it an async generator or a coroutine.

    A coroutine writes to the context itself, so there is nothing to yield.
    """
    answering = behaviour(request, context)
    if inspect.isawaitable(answering):
        await answering
        return
    async with aclosing(answering) as answers:
        async for answer in answers:
            yield answer


def behaviour_of(handler: Handler) -> Behaviour:
    """The function of a handler, whichever of the four shapes the method has."""
    behaviour: Any = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return cast("Behaviour", behaviour)


def rebuild(
    handler: Handler,
    behaviour: Behaviour,
    *,
    keep_deserializer: bool = True,
) -> Handler:
    """The same handler with another behaviour, which gets bytes unless the deserializer is kept."""
    factory = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    rebuilt: Handler = factory(
        behaviour,
        request_deserializer=handler.request_deserializer if keep_deserializer else None,
        response_serializer=handler.response_serializer,
    )
    return rebuilt
