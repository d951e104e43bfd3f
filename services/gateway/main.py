"""The gateway's process: `python -m services.gateway [migrate | bootstrap --key-file FILE]`."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog
from chatmind.gateway.v1 import access_service_pb2_grpc, gateway_service_pb2_grpc
from grpc import aio

from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.db import Pool, open_pool
from services.common.identity import IdentitySigner, load_signing_key
from services.common.ids import new_id
from services.common.interceptors import interceptor_chain
from services.common.logging import configure_logging
from services.common.migrate import load_migrations, migrate, wait_until_current
from services.common.paging import PageTokens
from services.common.process import run_service, until_stopped
from services.common.server import Register, serve
from services.common.settings import read_settings
from services.gateway.api.access_servicer import AccessServicer
from services.gateway.api.authentication import ApiKeyInterceptor
from services.gateway.api.forward import Forwarder, Unserved, Upstream
from services.gateway.api.gateway_servicer import GatewayServicer
from services.gateway.api.limits import LimitsInterceptor, Room
from services.gateway.api.methods import methods, services
from services.gateway.api.streaming import ClientStreams
from services.gateway.clients.agent import AgentClient
from services.gateway.clients.health import HealthProbe
from services.gateway.domain.access import Access
from services.gateway.domain.authenticator import Authenticator
from services.gateway.domain.bootstrap import ensure_admin_key
from services.gateway.domain.chat import Chat
from services.gateway.domain.issue import Issuer
from services.gateway.domain.limits import Slots
from services.gateway.domain.status import StatusBoard
from services.gateway.domain.stream import Pace, Stream
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
_MIGRATED_ELSEWHERE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that answers.

    Attributes:
        port: of gRPC.
        http_port: of HTTP.
    """

    port: int
    http_port: int


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="bring the database's schema up to date")
    bootstrap = commands.add_parser("bootstrap", help="see that a file holds an operator's key")
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
    dsn = settings.database_url.get_secret_value()
    await migrate(dsn, load_migrations(MIGRATIONS), schema=SCHEMA)


async def _bootstrap(settings: GatewaySettings, key_file: Path) -> None:
    async with _database(settings) as pool:
        keys = PostgresKeyStore(pool)
        await _ensure_admin_key(keys, Issuer(keys, new_id=new_id, clock=now), key_file)


async def _ensure_admin_key(keys: PostgresKeyStore, issuer: Issuer, path: Path) -> None:
    key = await ensure_admin_key(keys, issuer, PrivateKeyFile(path), clock=now)
    structlog.get_logger(_NAME).info("administrator's key", file=str(path), key_id=key.id)


@asynccontextmanager
async def _database(settings: GatewaySettings) -> AsyncIterator[Pool]:
    dsn = settings.database_url.get_secret_value()
    if settings.migrate:
        await _migrate(settings)
    async with open_pool(
        dsn, schema=SCHEMA, application_name=_APPLICATION, max_size=settings.database_pool
    ) as pool:
        await wait_until_current(
            pool, load_migrations(MIGRATIONS), timeout=_MIGRATED_ELSEWHERE_SECONDS
        )
        yield pool


@asynccontextmanager
async def _upstreams(settings: GatewaySettings) -> AsyncIterator[Mapping[str, Upstream]]:
    """The services behind the gateway by their name."""
    key = load_signing_key(settings.identity_dir / f"{_NAME}.pem")
    targets = {"agent": settings.agent_address, "knowledge": settings.knowledge_address}
    async with AsyncExitStack() as stack:
        upstreams = {}
        for name, target in targets.items():
            channel = await stack.enter_async_context(
                open_channel(
                    target,
                    max_message_bytes=settings.max_message_bytes,
                    idempotent_methods=[
                        (method.service, method.name)
                        for method in methods()
                        if method.repeatable and method.owner == name
                    ],
                )
            )
            signer = IdentitySigner(_NAME, key, audience=name, clock=now)
            upstreams[name] = Upstream(name, channel, OutgoingCalls(signer))
        yield upstreams


@asynccontextmanager
async def running_gateway(settings: GatewaySettings) -> AsyncIterator[RunningGateway]:
    """A gateway that answers for as long as the block lasts, and then drains.

    Raises:
        ListenError: an address is taken, or none of this machine's.
        ServiceError: the database cannot be used, or the administrator's key not be kept.
    """
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(_database(settings))
        upstreams = await stack.enter_async_context(_upstreams(settings))
        keys = PostgresKeyStore(pool)
        issuer = Issuer(keys, new_id=new_id, clock=now)
        if settings.admin_key_file is not None:
            await _ensure_admin_key(keys, issuer, settings.admin_key_file)
        room = _room(settings)
        board = _board(pool, upstreams, room)
        app = make_app(routes(board, version=version("chatmind"), clock=now))
        http_port = await stack.enter_async_context(serve_http(app, settings.http_listen))
        draining = asyncio.Event()
        authenticator = _authenticator(settings, keys)
        server = await stack.enter_async_context(
            serve(
                settings,
                services=services(),
                register=_register(
                    settings,
                    keys,
                    issuer=issuer,
                    upstreams=upstreams,
                    authenticator=authenticator,
                    draining=draining,
                ),
                interceptors=[
                    *interceptor_chain(_DOMAIN, ApiKeyInterceptor(authenticator)),
                    LimitsInterceptor(methods(), room),
                ],
                draining=draining,
            )
        )
        stack.callback(board.drain)
        yield RunningGateway(server.port, http_port)


def _room(settings: GatewaySettings) -> Room:
    most, uploads = settings.max_calls, settings.max_uploads
    return Room(
        calls=Slots("calls", most=most, most_per_key=most),
        uploads=Slots("uploads", most=uploads, most_per_key=uploads),
        streams=Slots(
            "streams", most=settings.max_streams, most_per_key=settings.max_streams_per_key
        ),
    )


def _board(pool: Pool, upstreams: Mapping[str, Upstream], room: Room) -> StatusBoard:
    return StatusBoard(
        {
            "database": DatabaseProbe(pool),
            **{each.name: HealthProbe(each.name, each.channel) for each in upstreams.values()},
        },
        open_calls=room.taken,
        hold_seconds=_STATUS_HOLD_SECONDS,
        clock=now,
    )


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


def _register(
    settings: GatewaySettings,
    keys: PostgresKeyStore,
    *,
    issuer: Issuer,
    upstreams: Mapping[str, Upstream],
    authenticator: Authenticator,
    draining: asyncio.Event,
) -> Register:
    """Adds to a server what it answers, what it passes on, and what it refuses."""
    agent = upstreams["agent"]
    agents = AgentClient(agent.channel, agent.calls)
    streams = ClientStreams(
        draining=draining,
        holds=authenticator.holds,
        recheck_seconds=_RECHECK_SECONDS,
        write_seconds=settings.write_seconds,
    )
    stream = Stream(
        agents,
        pace=Pace(heartbeat=settings.heartbeat_seconds, patience=settings.resume_seconds),
        clock=now,
    )
    access = Access(
        keys,
        issuer,
        tokens=PageTokens((settings.identity_dir / f"{_NAME}.pem").read_bytes()),
        forget=authenticator.forget,
        clock=now,
    )
    forwarder = Forwarder(
        methods(), upstreams, streams=streams, upload_seconds=settings.upload_seconds
    )
    messages = GatewayServicer(Chat(agents, new_id=new_id), stream, streams)

    def register(server: aio.Server) -> None:
        gateway_service_pb2_grpc.add_GatewayServiceServicer_to_server(messages, server)
        access_service_pb2_grpc.add_AccessServiceServicer_to_server(AccessServicer(access), server)
        server.add_generic_rpc_handlers((forwarder, Unserved()))

    return register
