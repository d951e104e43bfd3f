"""A grpc.aio server with health, reflection, the interceptor chain, and an orderly end."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from services.common.addresses import bind_error
from services.common.errors import StartupError
from services.common.keepalive import SERVER_KEEPALIVE
from services.common.settings import ServerSettings
from services.common.tasks import task_group

Register = Callable[[aio.Server], None]
HealthContext: TypeAlias = (
    "aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]"
)

# Ten times what a gateway may have under way. From a thousand calls on that wait to be taken up, as
# they do where very many come at one moment, grpc would cancel some: callers could not tell why.
_MOST_PENDING = 30_000

_OPTIONS = (
    *SERVER_KEEPALIVE,
    ("grpc.server.max_pending_requests", _MOST_PENDING),
    ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 32 * 1024),
)


class ListenError(StartupError):
    """The server cannot listen on its address; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is serving.

    Attributes:
        port: the port it listens on.
    """

    port: int


@asynccontextmanager
async def serve(
    settings: ServerSettings,
    *,
    services: Sequence[str],
    register: Register,
    interceptors: Sequence[aio.ServerInterceptor],
    draining: asyncio.Event,
) -> AsyncIterator[RunningServer]:
    """A server for as long as the block lasts, which then drains: health, streams, calls.

    Args:
        settings: address, limits and times.
        services: full names, for reflection and health.
        register: adds the servicers.
        interceptors: the chain, outermost first.
        draining: set when the server is about to stop; open streams then end themselves.

    Raises:
        ListenError: the address is taken, or not one of this machine's.
    """
    server = aio.server(interceptors=list(interceptors), options=_options(settings))
    register(server)
    health = _Health(draining)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if settings.reflection:
        names = (*services, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    port = _bind(server, settings.listen)
    await server.start()
    log = structlog.get_logger("server")
    try:
        await _set_health(health, services, health_pb2.HealthCheckResponse.SERVING)
        log.info("serving", listen=settings.listen, port=port)
        yield RunningServer(port)
    finally:
        try:
            await _set_health(health, services, health_pb2.HealthCheckResponse.NOT_SERVING)
            await asyncio.sleep(settings.drain_seconds)
        finally:
            draining.set()
            await _stop(server, settings.grace_seconds)
        log.info("stopped")


async def stop_signal() -> None:
    """Return once SIGTERM or SIGINT asks the process to stop; to be awaited once.

    The handlers stay installed: a second signal must not cut the orderly shutdown short.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, asked.set)
    await asked.wait()


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        *_OPTIONS,
        ("grpc.max_connection_age_ms", int(1000 * settings.connection_seconds)),
        ("grpc.max_connection_age_grace_ms", int(1000 * settings.connection_grace_seconds)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
    ]


class _Health(health_aio.HealthServicer):
    """Ends its watches when the server drains; an open one would use up the whole grace time."""

    def __init__(self, draining: asyncio.Event) -> None:
        super().__init__()
        self._draining = draining

    async def Watch(  # noqa: N802 - named by the contract
        self, request: health_pb2.HealthCheckRequest, context: HealthContext
    ) -> None:
        """The status of a service, now and after each change, until the server drains."""
        # If a write were cancelled before the metadata is out, the client would never see the end.
        await context.send_initial_metadata(())
        async with task_group() as group:
            watch = group.create_task(super().Watch(request, context))
            await self._draining.wait()
            watch.cancel()


async def _stop(server: aio.Server, grace: float) -> None:
    try:
        await server.stop(grace)
    except asyncio.CancelledError:
        # Without this the port would stay open for a moment after the process believes it closed.
        await server.stop(None)
        raise


def _bind(server: aio.Server, address: str) -> int:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address}: {_obstacle(address)}") from error
    if port == 0:
        raise ListenError(f"cannot listen on {address}: {_obstacle(address)}")
    return port


def _obstacle(address: str) -> str:
    """Why listening there failed, which grpc does not tell."""
    error = bind_error(address)
    if error is None:
        return "it was in use a moment ago"
    return error.strerror or "it is not an address of this machine"


async def _set_health(
    health: health_aio.HealthServicer,
    services: Sequence[str],
    status: int,
) -> None:
    for name in ("", *services):
        await health.set(name, status)
