"""Real gRPC servers of one method, whose behaviour is the test's."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
from grpc import aio

Behaviour: TypeAlias = Callable[[Any, Any], Any]
# grpc's classes take their parameters in its stubs alone.
RawHandler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | Behaviour"
Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"

SERVICE = "test.v1.TestService"
METHOD = f"/{SERVICE}/Method"


@asynccontextmanager
async def serving(
    handler: Handler, *interceptors: aio.ServerInterceptor, service: str = SERVICE
) -> AsyncIterator[aio.Channel]:
    """A channel to a server that answers `METHOD`, in bytes; a bare behaviour is a unary one.

    Methods of other services are named `/<service>/Method`.
    """
    if not isinstance(handler, grpc.RpcMethodHandler):
        handler = grpc.unary_unary_rpc_method_handler(handler)
    server = aio.server(interceptors=interceptors)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Method": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        # What a call does after its answer, such as its line in the log, is waited for.
        await server.stop(10)


def raising(error: BaseException) -> Behaviour:
    """A unary behaviour that fails."""

    async def behave(request: Any, context: Any) -> bytes:
        raise error

    return behave
