"""What the interceptors share: doing something before a call, or around it, whatever its shape.

Each method's handler is wrapped once, not with every call. Within, every behaviour is a coroutine:
one that streams its answers writes them, so an open stream costs a few frames, not generators.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import cached_property
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

# Methods that nobody serves have handlers of their own, under whatever name a client calls.
_MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """An incoming call.

    Attributes:
        method: `/package.Service/Method`.
        streaming: whether either side sends more than one message.
        context: grpc's own.
    """

    method: str
    streaming: bool
    context: Context

    @property
    def metadata(self) -> dict[str, str | bytes]:
        """The first value of each key; keys are in lower case."""
        metadata: dict[str, str | bytes] = {}
        for key, value in self.context.invocation_metadata() or ():
            metadata.setdefault(key, value)
        return metadata

    @property
    def seconds_left(self) -> float | None:
        """The time to its deadline; None if the client set none."""
        return cast("float | None", self.context.time_remaining())

    @property
    def code(self) -> grpc.StatusCode | None:
        """The status that was set so far; None if none was."""
        return cast("grpc.StatusCode | None", self.context.code())


class WrappingInterceptor(aio.ServerInterceptor, ABC):
    """Replaces each method's handler with one that does more."""

    @cached_property
    def _known(self) -> dict[str, tuple[Handler, Handler]]:
        """The handlers of methods, as they are and wrapped."""
        return {}

    @abstractmethod
    def wrapped(self, handler: Handler, method: str) -> Handler:
        """The handler to use instead."""

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> OptionalHandler:
        """The handler of a call, wrapped."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        known = self._known.get(method)
        if known is not None and known[0] is handler:
            return known[1]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        wrapped = self.wrapped(handler, method)
        self._known[method] = (handler, wrapped)
        return wrapped


class AdmittingInterceptor(WrappingInterceptor):
    """Does something before every call, and may refuse it."""

    @abstractmethod
    async def admit(self, call: Call) -> None:
        """Return if the call may go on; what this raises, it ends with."""

    def wrapped(self, handler: Handler, method: str) -> Handler:
        """The handler, after `admit`."""
        inner, streaming = coroutine_of(handler), is_streaming(handler)

        async def behave(request: Any, context: Context) -> Any:
            await self.admit(Call(method, streaming, context))
            return await inner(request, context)

        return rebuild(handler, behave)


class AroundInterceptor(WrappingInterceptor):
    """Enters a context around every call; the call's exceptions pass through it."""

    @abstractmethod
    def around(self, call: Call) -> AbstractAsyncContextManager[None]:
        """The context to enter."""

    def wrapped(self, handler: Handler, method: str) -> Handler:
        """The handler, within `around`."""
        inner, streaming = coroutine_of(handler), is_streaming(handler)

        async def behave(request: Any, context: Context) -> Any:
            async with self.around(Call(method, streaming, context)):
                return await inner(request, context)

        return rebuild(handler, behave)


def is_streaming(handler: Handler) -> bool:
    """Whether either side sends more than one message."""
    return bool(handler.request_streaming or handler.response_streaming)


def coroutine_of(handler: Handler) -> Behaviour:
    """The behaviour of a handler as a coroutine, which writes its answers if they are several."""
    behaviour = _behaviour_of(handler)
    if not handler.response_streaming or inspect.iscoroutinefunction(behaviour):
        return behaviour

    async def write_all(request: Any, context: Context) -> None:
        answering = behaviour(request, context)
        if inspect.isawaitable(answering):
            await answering
            return
        async with aclosing(answering) as answers:
            async for answer in answers:
                await context.write(answer)

    return write_all


def _behaviour_of(handler: Handler) -> Behaviour:
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
