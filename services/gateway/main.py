"""The gateway's process: `python -m services.gateway [migrate | bootstrap --key-file FILE]`."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog
from chatmind.gateway.v1 import access_service_pb2_grpc, gateway_service_pb2_grpc
from grpc import aio

from services.common.clock import now
from services.common.db import Pool
from services.common.ids import new_id
from services.common.interceptors import interceptor_chain
from services.common.logging import configure_logging
from services.common.paging import PageTokens
from services.common.process import run_service, until_stopped
from services.common.schema import migrate_schema, open_schema
from services.common.server import Register, serve
from services.common.settings import read_settings
from services.common.tasks import BackgroundTasks, background_tasks
from services.common.upstream import Upstream, open_upstream
from services.gateway.api.access_servicer import AccessServicer
from services.gateway.api.authentication import ApiKeyInterceptor
from services.gateway.api.forward import Forwarder, Unserved
from services.gateway.api.gateway_servicer import GatewayServicer
from services.gateway.api.limits import CallLimits, LimitsInterceptor
from services.gateway.api.methods import methods, services
from services.gateway.api.streaming import ClientStreams
from services.gateway.clients.agent import AgentClient
from services.gateway.clients.health import HealthProbe
from services.gateway.clients.watch_lane import Pace
from services.gateway.clients.watches import SessionWatches
from services.gateway.domain.access import Access
from services.gateway.domain.authenticator import Authenticator
from services.gateway.domain.bootstrap import ensure_admin_key
from services.gateway.domain.chat import Chat
from services.gateway.domain.issue import Issuer
from services.gateway.domain.limits import ConcurrencyLimit
from services.gateway.domain.status import StatusBoard
from services.gateway.domain.stream import Stream
from services.gateway.domain.throttle import Throttle
from services.gateway.settings import GatewaySettings
from services.gateway.store.key_file import PrivateKeyFile
from services.gateway.store.postgres import MIGRATIONS, SCHEMA, DatabaseProbe, PostgresKeyStore
from services.gateway.web.app import make_app
from services.gateway.web.routes import routes
from services.gateway.web.server import serve_http

_NAME = "gateway"
_DOMAIN = "gateway.chatmind"
_APPLICATION = "chatmind-gateway"
_STATUS_HOLD_SECONDS = 2.0
_RECHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that is serving.

    Attributes:
        port: its gRPC port.
        http_port: its HTTP port.
    """

    port: int
    http_port: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the servers are made of.

    Attributes:
        settings: of this process.
        pool: the database.
        keys: the API keys in it.
        issuer: makes new ones.
        authenticator: checks those that come with calls.
        upstreams: the services behind the gateway, by name.
    """

    settings: GatewaySettings
    pool: Pool
    keys: PostgresKeyStore
    issuer: Issuer
    authenticator: Authenticator
    upstreams: Mapping[str, Upstream]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="bring the database's schema up to date")
    bootstrap = commands.add_parser("bootstrap", help="ensure that a file holds an operator's key")
    bootstrap.add_argument("--key-file", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    settings = read_settings(GatewaySettings)
    configure_logging(_NAME, level=settings.log_level)
    match arguments.command:
        case "migrate":
            run_service(_NAME, _migrate(settings))
        case "bootstrap":
            run_service(_NAME, _bootstrap(settings, arguments.key_file))
        case _:
            run_service(_NAME, until_stopped(running_gateway(settings)))


async def _migrate(settings: GatewaySettings) -> None:
    await migrate_schema(settings, schema=SCHEMA, migrations=MIGRATIONS)


async def _bootstrap(settings: GatewaySettings, key_file: Path) -> None:
    async with _database(settings) as pool:
        keys = PostgresKeyStore(pool)
        await _ensure_admin_key(keys, _issuer(keys), path=key_file)


def _database(settings: GatewaySettings) -> AbstractAsyncContextManager[Pool]:
    return open_schema(
        settings, schema=SCHEMA, migrations=MIGRATIONS, application_name=_APPLICATION
    )


def _issuer(keys: PostgresKeyStore) -> Issuer:
    return Issuer(keys, new_id=new_id, clock=now)


async def _ensure_admin_key(keys: PostgresKeyStore, issuer: Issuer, *, path: Path) -> None:
    key = await ensure_admin_key(keys, issuer, PrivateKeyFile(path), clock=now)
    structlog.get_logger(_NAME).info("administrator's key", file=str(path), key_id=key.id)


@asynccontextmanager
async def running_gateway(settings: GatewaySettings) -> AsyncIterator[RunningGateway]:
    """A gateway that runs for as long as the block lasts, and then drains.

    Raises:
        ListenError: an address is taken, or not one of this machine's.
        ServiceError: the database cannot be used, or the administrator's key cannot be kept.
        FileNotFoundError: a key is missing.
    """
    async with AsyncExitStack() as stack:
        parts = await _parts(settings, stack)
        if settings.admin_key_file is not None:
            await _ensure_admin_key(parts.keys, parts.issuer, path=settings.admin_key_file)
        limits = _call_limits(settings)
        board = _status_board(parts, limits)
        app = make_app(routes(board, version=version("chatmind"), clock=now))
        http_port = await stack.enter_async_context(serve_http(app, settings.http_listen))
        draining = asyncio.Event()
        tasks = await stack.enter_async_context(background_tasks())
        server = await stack.enter_async_context(
            serve(
                settings,
                services=services(),
                register=_register(parts, tasks, draining),
                interceptors=[
                    *interceptor_chain(_DOMAIN, ApiKeyInterceptor(parts.authenticator)),
                    LimitsInterceptor(methods(), limits),
                ],
                draining=draining,
            )
        )
        # Runs before the servers end, so that load balancers learn of it while HTTP still answers.
        stack.callback(board.drain)
        yield RunningGateway(server.port, http_port)


async def _parts(settings: GatewaySettings, stack: AsyncExitStack) -> _Parts:
    pool = await stack.enter_async_context(_database(settings))
    upstreams = await stack.enter_async_context(_upstreams(settings))
    keys = PostgresKeyStore(pool)
    authenticator = _authenticator(settings, keys)
    return _Parts(settings, pool, keys, _issuer(keys), authenticator, upstreams)


@asynccontextmanager
async def _upstreams(settings: GatewaySettings) -> AsyncIterator[Mapping[str, Upstream]]:
    """The services behind the gateway, by name."""
    targets = {"agent": settings.agent_address, "knowledge": settings.knowledge_address}
    async with AsyncExitStack() as stack:
        upstreams = {}
        for name, target in targets.items():
            upstreams[name] = await stack.enter_async_context(
                open_upstream(
                    settings,
                    name,
                    caller=_NAME,
                    target=target,
                    idempotent_methods=[
                        (method.service, method.name)
                        for method in methods()
                        if method.repeatable and method.owner == name
                    ],
                )
            )
        yield upstreams


def _authenticator(settings: GatewaySettings, keys: PostgresKeyStore) -> Authenticator:
    throttle = Throttle(
        burst=settings.bad_keys_burst,
        per_minute=settings.bad_keys_per_minute,
        monotonic=time.monotonic,
    )
    return Authenticator(
        keys,
        throttle,
        hold_seconds=settings.key_hold_seconds,
        clock=now,
        monotonic=time.monotonic,
    )


def _call_limits(settings: GatewaySettings) -> CallLimits:
    calls, uploads = settings.max_calls, settings.max_uploads
    return CallLimits(
        calls=ConcurrencyLimit("calls", most=calls, most_per_key=calls),
        uploads=ConcurrencyLimit("uploads", most=uploads, most_per_key=uploads),
        streams=ConcurrencyLimit(
            "streams", most=settings.max_streams, most_per_key=settings.max_streams_per_key
        ),
    )


def _status_board(parts: _Parts, limits: CallLimits) -> StatusBoard:
    upstreams = parts.upstreams.values()
    return StatusBoard(
        {
            "database": DatabaseProbe(parts.pool),
            **{each.name: HealthProbe(each.name, each.channel) for each in upstreams},
        },
        open_calls=limits.open_calls,
        hold_seconds=_STATUS_HOLD_SECONDS,
        clock=now,
    )


def _register(parts: _Parts, tasks: BackgroundTasks, draining: asyncio.Event) -> Register:
    """Adds to a server what it answers itself, what it forwards, and what it refuses."""
    settings = parts.settings
    streams = ClientStreams(
        draining=draining,
        holds=parts.authenticator.holds,
        recheck_seconds=_RECHECK_SECONDS,
        write_seconds=settings.write_seconds,
    )
    tasks.start("keep streams", streams.keep())
    forwarder = Forwarder(
        methods(), parts.upstreams, streams=streams, upload_seconds=settings.upload_seconds
    )
    messages = _gateway_servicer(parts, streams, tasks, draining)
    access = _access_servicer(parts)

    def register(server: aio.Server) -> None:
        gateway_service_pb2_grpc.add_GatewayServiceServicer_to_server(messages, server)
        access_service_pb2_grpc.add_AccessServiceServicer_to_server(access, server)
        server.add_generic_rpc_handlers((forwarder, Unserved()))

    return register


def _gateway_servicer(
    parts: _Parts, streams: ClientStreams, tasks: BackgroundTasks, draining: asyncio.Event
) -> GatewayServicer:
    settings, agent = parts.settings, parts.upstreams["agent"]
    agents = AgentClient(agent.channel, agent.calls)
    pace = Pace(patience=settings.resume_seconds)
    watches = SessionWatches(agent.channel, agent.calls, pace=pace)
    tasks.start("watch sessions", watches.run())
    stream = Stream(
        agents, watches, clock=now, draining=draining, heartbeat=settings.heartbeat_seconds
    )
    tasks.start("keep sessions", stream.keep())
    return GatewayServicer(Chat(agents, new_id=new_id), stream, streams)


def _access_servicer(parts: _Parts) -> AccessServicer:
    access = Access(parts.keys, parts.issuer, forget=parts.authenticator.forget, clock=now)
    key = (parts.settings.identity_dir / f"{_NAME}.pem").read_bytes()
    return AccessServicer(access, PageTokens(key))
