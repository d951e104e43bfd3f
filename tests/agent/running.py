"""An agent service over real gRPC and PostgreSQL, with a scripted model server behind it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from chatmind.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    session_pb2,
)
from chatmind.knowledge.v1 import (
    document_pb2,
    knowledge_base_pb2,
    knowledge_service_pb2,
    knowledge_service_pb2_grpc,
    search_pb2,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from grpc import aio

from cli.local.ports import free_ports
from services.agent.clients.models_file import EndpointSettings, ModelSettings
from services.agent.domain.ports import Tool
from services.agent.main import running_agent
from services.agent.settings import AgentServiceSettings
from services.common.channel import OutgoingCalls
from services.common.clock import now
from services.common.errors import NotFoundError
from services.common.identity import Identity, IdentitySigner, IdentityVerifier, Role
from services.common.ids import new_id
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import (
    AuthenticationInterceptor,
    current_identity,
)
from services.common.status import RpcFailure, failure_of
from tests.agent.scripted_model import ScriptedModel, scripted_model
from tests.servicers import incomplete

ALICE = Identity("acme", "alice")
BOB = Identity("acme", "bob")
ADMIN = Identity("acme", "ada", frozenset({Role.ADMIN}))
STRANGER = Identity("other", "alice")

ROOT = Path(__file__).parents[2]

ENOUGH = 10.0
"""Seconds after which something that does not happen is taken to happen never."""

_FINAL = (run_pb2.Run.STATE_FINISHED, run_pb2.Run.STATE_ERROR, run_pb2.Run.STATE_CANCELLED)
_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Keys:
    """Who may call whom: the gateway the agent, the agent the knowledge service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway, self.agent = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        trusted = folder / "trusted"
        trusted.mkdir(parents=True, exist_ok=True)
        private = self.agent.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "agent.pem").write_bytes(private)
        public = self.gateway.public_key()
        (trusted / "gateway.pub").write_bytes(
            public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )

    def caller(self, channel: aio.Channel, identity: Identity) -> "Caller":
        """An agent service as somebody calls it."""
        signer = IdentitySigner("gateway", self.gateway, audience="agent", clock=now)
        return Caller(channel, identity, OutgoingCalls(signer))


class FakeKnowledge(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    """A knowledge service with bases that their owners alone see, one passage in each."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.owners: dict[str, Identity] = {}
        self.searches: list[knowledge_service_pb2.SearchRequest] = []
        self.port = 0

    def add(self, owner: Identity) -> str:
        """A new base of somebody's."""
        base_id = new_id()
        self.owners[base_id] = owner
        return base_id

    async def GetKnowledgeBase(  # noqa: N802 -- named by the contract
        self, request: knowledge_service_pb2.GetKnowledgeBaseRequest, context: Any
    ) -> knowledge_service_pb2.GetKnowledgeBaseResponse:
        self._check(request.knowledge_base_id)
        base = knowledge_base_pb2.KnowledgeBase(
            id=request.knowledge_base_id, display_name="Handbook", description="How we work."
        )
        return knowledge_service_pb2.GetKnowledgeBaseResponse(knowledge_base=base)

    async def Search(  # noqa: N802 -- named by the contract
        self, request: knowledge_service_pb2.SearchRequest, context: Any
    ) -> knowledge_service_pb2.SearchResponse:
        self.searches.append(request)
        for base_id in request.knowledge_base_ids:
            self._check(base_id)
        chunk = document_pb2.Chunk(
            id=new_id(),
            document_id=new_id(),
            knowledge_base_id=request.knowledge_base_ids[0],
            heading_path=["Backups"],
            text="Backups are kept for 35 days.",
            start_line=3,
            end_line=3,
        )
        hit = search_pb2.Hit(chunk=chunk, document_name="handbook.md", score=0.75)
        return knowledge_service_pb2.SearchResponse(hits=[hit])

    def _check(self, base_id: str) -> None:
        if self.owners.get(base_id) != current_identity():
            raise NotFoundError("No such base.", metadata={"id": base_id})


@asynccontextmanager
async def fake_knowledge(keys: Keys) -> AsyncIterator[FakeKnowledge]:
    """The service, for callers with an identity token of the agent's."""
    verifier = IdentityVerifier("knowledge", {"agent": keys.agent.public_key()}, clock=now)
    chain = interceptor_chain("knowledge.chatmind", AuthenticationInterceptor(verifier))
    server = aio.server(interceptors=chain)
    service = incomplete(FakeKnowledge)(keys)
    knowledge_service_pb2_grpc.add_KnowledgeServiceServicer_to_server(service, server)
    service.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield service
    finally:
        await server.stop(None)


class Caller:
    """The service as one user calls it, by way of the gateway."""

    def __init__(self, channel: aio.Channel, identity: Identity, calls: OutgoingCalls) -> None:
        self.identity = identity
        self.metadata = calls.metadata(identity)
        self.agents: Any = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.runs: Any = run_service_pb2_grpc.RunServiceStub(channel)

    async def call(self, method: str, request: Any) -> Any:
        """The answer of a unary method of either service."""
        stub = self.agents if hasattr(self.agents, method) else self.runs
        return await getattr(stub, method)(request, metadata=self.metadata, timeout=ENOUGH)

    async def failure(self, method: str, request: Any) -> RpcFailure:
        """How a call fails; that it does not is an error."""
        try:
            answer = await self.call(method, request)
        except aio.AioRpcError as error:
            return failure_of(error)
        raise AssertionError(f"{method} answered {answer}")

    async def create_agent(self, **fields: Any) -> agent_pb2.Agent:
        """A new agent."""
        agent = agent_pb2.Agent(**{"display_name": "Helper", **fields})
        answer = await self.call("CreateAgent", agent_service_pb2.CreateAgentRequest(agent=agent))
        created: agent_pb2.Agent = answer.agent
        return created

    async def create_session(self, agent_id: str = "", **fields: Any) -> session_pb2.Session:
        """A new session, with a new agent unless one is named."""
        agent_id = agent_id or (await self.create_agent()).id
        session = session_pb2.Session(agent_id=agent_id, **fields)
        request = agent_service_pb2.CreateSessionRequest(session=session)
        created: session_pb2.Session = (await self.call("CreateSession", request)).session
        return created

    async def say(self, session_id: str, text: str = "Hello", **fields: Any) -> run_pb2.Run:
        """The run that answers a message."""
        request = run_service_pb2.StartRunRequest(session_id=session_id, text=text, **fields)
        run: run_pb2.Run = (await self.call("StartRun", request)).run
        return run

    async def run(self, run_id: str) -> run_pb2.Run:
        """A run as it is now."""
        request = run_service_pb2.GetRunRequest(run_id=run_id)
        run: run_pb2.Run = (await self.call("GetRun", request)).run
        return run

    async def cancel(self, run_id: str) -> run_pb2.Run:
        """A run after it was asked to stop."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id)
        run: run_pb2.Run = (await self.call("CancelRun", request)).run
        return run

    async def ended(self, run_id: str, *, within: float = ENOUGH) -> run_pb2.Run:
        """A run once it has ended."""
        return await self.until(run_id, lambda run: run.state in _FINAL, within=within)

    async def until(
        self, run_id: str, condition: Callable[[run_pb2.Run], bool], *, within: float = ENOUGH
    ) -> run_pb2.Run:
        """A run once something is true of it."""
        async with asyncio.timeout(within):
            while not condition(run := await self.run(run_id)):  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.02)
        return run

    async def messages(self, session_id: str) -> list[session_pb2.Message]:
        """The first 200 messages of a session."""
        request = agent_service_pb2.ListMessagesRequest(session_id=session_id, page_size=200)
        return list((await self.call("ListMessages", request)).messages)

    def watch(self, session_id: str, after: int | None = None) -> Any:
        """The call that watches a session."""
        request = run_service_pb2.WatchSessionRequest(session_id=session_id, after_sequence=after)
        return self.runs.WatchSession(request, metadata=self.metadata)


@dataclass
class RunningAgent:
    """What a test needs of it all.

    Attributes:
        channel: to the service.
        model: the server of its default model.
        knowledge: the service behind it.
        keys: of the services.
        settings: the service's.
        stop: ends the service in order, before the test does.
    """

    channel: aio.Channel
    model: ScriptedModel
    knowledge: FakeKnowledge
    keys: Keys
    settings: AgentServiceSettings
    stop: Callable[[], Awaitable[None]]

    def caller(self, identity: Identity) -> Caller:
        """The service as somebody calls it."""
        return self.keys.caller(self.channel, identity)

    @property
    def alice(self) -> Caller:
        """The service as Alice calls it."""
        return self.caller(ALICE)


def service_settings(
    database: str, keys: Keys, knowledge: FakeKnowledge, **settings: Any
) -> AgentServiceSettings:
    """Settings of a service that listens where the system likes, and drains at once."""
    return AgentServiceSettings(
        **{
            "CHATMIND_DATABASE_URL": database,
            "listen": "127.0.0.1:0",
            "identity_dir": keys.folder,
            "knowledge_address": f"127.0.0.1:{knowledge.port}",
            "drain_seconds": 0,
            "grace_seconds": 2,
            "lease_seconds": 1,
            "poll_seconds": 0.5,
            "migrate": False,
            "database_pool": 5,
            **settings,
        }
    )


class Process:
    """`python -m services.agent`, with the environment that a test gives it."""

    def __init__(self, database: str, keys: Keys, **variables: str) -> None:
        self.keys = keys
        self.port = next(free_ports())
        self._environment = {
            **{name: value for name, value in os.environ.items() if "OPENAI" not in name},
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
            "CHATMIND_DATABASE_URL": database,
            "CHATMIND_AGENT_LISTEN": f"127.0.0.1:{self.port}",
            "CHATMIND_AGENT_IDENTITY_DIR": str(keys.folder),
            "CHATMIND_AGENT_DRAIN_SECONDS": "0",
            **variables,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._logged: asyncio.Task[bytes] | None = None

    @asynccontextmanager
    async def started(self) -> AsyncIterator[aio.Channel]:
        """A channel to the process once it answers; it is killed at the end if it still runs."""
        await self._start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                await asyncio.wait_for(channel.channel_ready(), 30)
                yield channel
        finally:
            await self.end(signal.SIGKILL)

    async def failed(self) -> tuple[int | None, str]:
        """What a process that cannot start ends with, and what it says."""
        await self._start()
        return await self._ended(within=3 * ENOUGH)

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.agent",
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        # Read all along: a process whose log nobody reads stands still once the pipe is full.
        self._logged = asyncio.ensure_future(self._process.stderr.read())

    async def end(self, signum: signal.Signals) -> tuple[int | None, str]:
        """What the process ends with after a signal, and what it logged."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signum)
        return await self._ended(within=ENOUGH)

    async def _ended(self, *, within: float) -> tuple[int | None, str]:
        assert self._process is not None
        assert self._logged is not None
        async with asyncio.timeout(within):
            logged = await self._logged
            return await self._process.wait(), logged.decode()


def scripted(model: ScriptedModel) -> Sequence[ModelSettings]:
    """The settings of a model that a scripted server plays."""
    return [ModelSettings("scripted", (EndpointSettings(model.base_url, "scripted", ""),))]


@asynccontextmanager
async def running(
    folder: Path,
    database: str,
    *,
    keys: Keys | None = None,
    tools: Sequence[Tool] = (),
    **settings: Any,
) -> AsyncIterator[RunningAgent]:
    """A service with these settings, and these tools besides its own."""
    keys = keys or Keys(folder / "identity")
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(scripted_model())
        knowledge = await stack.enter_async_context(fake_knowledge(keys))
        given = service_settings(database, keys, knowledge, **settings)
        service = await stack.enter_async_context(AsyncExitStack())
        server = await service.enter_async_context(running_agent(given, scripted(model), tools))
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=_LIMITS)
        )
        yield RunningAgent(channel, model, knowledge, keys, given, service.aclose)
