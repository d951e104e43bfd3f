"""A gateway with an agent service and a knowledge service behind it, all over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chatmind.agent.v1 import agent_service_pb2_grpc, run_service_pb2_grpc
from chatmind.gateway.v1 import (
    access_pb2,
    access_service_pb2,
    access_service_pb2_grpc,
    gateway_service_pb2_grpc,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from cli.local.ports import free_ports
from services.common.clock import now
from services.common.identity import Identity, IdentityVerifier, Role, load_trusted_keys
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import AuthenticationInterceptor
from services.gateway.main import running_gateway
from services.gateway.settings import GatewaySettings
from tests.gateway.echo import Echo
from tests.gateway.fake_agent import FakeAgent
from tests.servicers import incomplete

MESSAGE_BYTES = 20 * 1024 * 1024
ADMIN = Identity("default", "admin", frozenset({Role.ADMIN, Role.OPERATOR}))
ENOUGH = 10.0
"""Seconds after which something that does not happen is taken to happen never."""


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call with a key."""
    return (("authorization", f"Bearer {key}"),)


@dataclass
class Upstream:
    """A server for a fake service, which can be stopped and started again at the same port."""

    name: str
    identity_dir: Path
    register: Callable[[aio.Server], None]
    port: int = field(default_factory=lambda: next(free_ports()))
    server: aio.Server | None = None

    async def start(self) -> None:
        """Serve, for callers with an identity token of the gateway."""
        trusted = load_trusted_keys(self.identity_dir / "trusted", frozenset({"gateway"}))
        verifier = IdentityVerifier(self.name, trusted, clock=now)
        self.server = aio.server(
            interceptors=interceptor_chain(
                f"{self.name}.chatmind", AuthenticationInterceptor(verifier)
            ),
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
            ],
        )
        self.register(self.server)
        health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, self.server)
        await health.set("", health_pb2.HealthCheckResponse.SERVING)
        assert self.server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self.server.start()

    async def kill(self) -> None:
        """End at once; open calls break off."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None


@dataclass
class Installation:
    """What a test needs of it all.

    Attributes:
        channel: to the gateway, without a key.
        http: base of the gateway's HTTP addresses.
        key: an administrator's.
        agent: the agent service; `agent_server` is its server.
        knowledge: the knowledge service; `knowledge_server` is its server.
        settings: the gateway's.
        stop: ends the gateway alone, in order.
    """

    port: int
    channel: aio.Channel
    http: str
    key: str
    agent: FakeAgent
    agent_server: Upstream
    knowledge: Echo
    knowledge_server: Upstream
    settings: GatewaySettings
    stop: Callable[[], Coroutine[Any, Any, None]]

    @property
    def messages(self) -> Any:
        """A stub of GatewayService."""
        return gateway_service_pb2_grpc.GatewayServiceStub(self.channel)

    @property
    def access(self) -> Any:
        """A stub of AccessService."""
        return access_service_pb2_grpc.AccessServiceStub(self.channel)

    async def make_key(self, user_id: str, **fields: Any) -> tuple[access_pb2.ApiKey, str]:
        """A new key and its secret."""
        request = access_service_pb2.CreateApiKeyRequest(user_id=user_id, **fields)
        response = await self.access.CreateApiKey(request, metadata=bearer(self.key))
        return response.api_key, response.secret


@asynccontextmanager
async def open_installation(
    folder: Path, database: str, **settings: Any
) -> AsyncIterator[Installation]:
    """An installation whose gateway has these settings."""
    write_identity_keys(folder / "identity")
    agent, echo = incomplete(FakeAgent)(), Echo()
    agent_server = serving_agent(agent, folder / "identity")
    knowledge_server = Upstream(
        "knowledge", folder / "identity", lambda server: server.add_generic_rpc_handlers((echo,))
    )
    given = gateway_settings(
        folder,
        database,
        agent_address=f"127.0.0.1:{agent_server.port}",
        knowledge_address=f"127.0.0.1:{knowledge_server.port}",
        **settings,
    )
    async with AsyncExitStack() as stack:
        for upstream in (agent_server, knowledge_server):
            stack.push_async_callback(upstream.kill)
            await upstream.start()
        gateway = await stack.enter_async_context(AsyncExitStack())
        running = await gateway.enter_async_context(running_gateway(given))
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        channel = await stack.enter_async_context(
            aio.insecure_channel(f"127.0.0.1:{running.port}", options=options)
        )
        yield Installation(
            port=running.port,
            channel=channel,
            http=f"http://127.0.0.1:{running.http_port}",
            key=(folder / "admin.key").read_text().strip(),
            agent=agent,
            agent_server=agent_server,
            knowledge=echo,
            knowledge_server=knowledge_server,
            settings=given,
            stop=gateway.aclose,
        )


def serving_agent(agent: FakeAgent, identity_dir: Path) -> Upstream:
    """The server of an agent service, not started yet."""

    def register(server: aio.Server) -> None:
        trusted = load_trusted_keys(identity_dir / "trusted", frozenset({"gateway"}))
        agent.verifier = IdentityVerifier("agent", trusted, clock=now)
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(agent, server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(agent, server)

    return Upstream("agent", identity_dir, register)


def gateway_settings(folder: Path, database: str, **settings: Any) -> GatewaySettings:
    """Settings of a gateway that listens where the system likes and drains at once."""
    return GatewaySettings(
        **{
            "CHATMIND_DATABASE_URL": database,
            "listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "identity_dir": folder / "identity",
            "admin_key_file": folder / "admin.key",
            "drain_seconds": 0,
            "grace_seconds": 2,
            "heartbeat_seconds": 0.5,
            "key_hold_seconds": 0.5,
            **settings,
        }
    )


def write_identity_keys(folder: Path) -> None:
    """The gateway's key, and its public half for those who trust it."""
    (folder / "trusted").mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "gateway.pem").write_bytes(private)
    (folder / "trusted/gateway.pub").write_bytes(public)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; fail if that takes too long."""
    async with asyncio.timeout(ENOUGH):
        while not condition():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.01)
