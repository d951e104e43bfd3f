"""What the interceptors share: run something around a call, whatever its shape."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import grpc
from grpc import aio

# Strings, because grpc's classes are generic to type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
OptionalHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[OptionalHandler]]"
Behaviour: TypeAlias = "Callable[[Any, Context], Any]"


@dataclass(frozen=True, slots=True)
class Call:
    """One call on its way in.

    Attributes:
        method: `/package.Service/Method`.
        metadata: what came with it; keys in lower case, the first value of each.
        streaming: whether either side sends more than one message.
        context: grpc's own.
    """

    method: str
    metadata: dict[str, str | bytes]
    streaming: bool
    context: Context

    @property
    def seconds_left(self) -> float | None:
        """The time to its deadline; none where the client set none."""
        return cast("float | None", self.context.time_remaining())

    @property
    def code(self) -> grpc.StatusCode | None:
        """The status it was given so far, if any."""
        return cast("grpc.StatusCode | None", self.context.code())


class AroundInterceptor(aio.ServerInterceptor, ABC):
    """Enters a context around every call; exceptions of the call pass through it."""

    @abstractmethod
    def around(self, call: Call) -> AbstractAsyncContextManager[None]:
        """The context to enter."""

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> OptionalHandler:
        """The handler with `around` about it."""
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
    """What a streaming behaviour answers, be it an async generator or a coroutine.

    A coroutine writes to the context itself, so that nothing is left to yield here.
    """
    answering = behaviour(request, context)
    if inspect.isawaitable(answering):
        await answering
        return
    async with aclosing(answering) as answers:
        async for answer in answers:
            yield answer


def behaviour_of(handler: Handler) -> Behaviour:
    """The function that answers, whichever of the four shapes the method has."""
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
    """The same handler with another behaviour, which gets bytes where no deserializer is kept."""
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
