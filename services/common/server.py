"""A grpc.aio server with health, reflection, the interceptor chain, and an orderly end."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from services.common.settings import ServerSettings

Register = Callable[[aio.Server], None]

_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 32 * 1024),
)


class RunningServer:
    """A server that answers.

    Attributes:
        port: the port it listens on.
        draining: set once it is about to stop; open streams end themselves then.
    """

    def __init__(self, port: int, draining: asyncio.Event) -> None:
        self.port = port
        self.draining = draining


@asynccontextmanager
async def serve(
    settings: ServerSettings,
    *,
    services: Sequence[str],
    register: Register,
    interceptors: Sequence[aio.ServerInterceptor],
    draining: asyncio.Event,
) -> AsyncIterator[RunningServer]:
    """Serves until the context is left, then drains: health first, streams next, calls last.

    Args:
        settings: address, limits and times.
        services: full names, for reflection and health.
        register: adds the servicers.
        interceptors: the chain, outermost first.
        draining: is set when the server is about to stop.

    Raises:
        OSError: the address cannot be bound.
    """
    limit = settings.max_message_bytes
    server = aio.server(
        interceptors=list(interceptors),
        options=[
            *_OPTIONS,
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
        ],
    )
    register(server)
    health = health_aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if settings.reflection:
        names = (*services, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    port = _bind(server, settings.listen)
    await server.start()
    await _set_health(health, services, health_pb2.HealthCheckResponse.SERVING)
    log = structlog.get_logger("server")
    log.info("serving", listen=settings.listen, port=port)
    try:
        yield RunningServer(port, draining)
    finally:
        await _set_health(health, services, health_pb2.HealthCheckResponse.NOT_SERVING)
        await asyncio.sleep(settings.drain_seconds)
        draining.set()
        await server.stop(settings.grace_seconds)
        log.info("stopped")


async def stop_signal() -> None:
    """Returns once the process is asked to stop, by SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, asked.set)
    try:
        await asked.wait()
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)


def _bind(server: aio.Server, address: str) -> int:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}") from error
    if port == 0:
        raise OSError(f"cannot listen on {address}")
    return port


async def _set_health(
    health: health_aio.HealthServicer,
    services: Sequence[str],
    status: int,
) -> None:
    for name in ("", *services):
        await health.set(name, status)
