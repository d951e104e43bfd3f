"""The agent service's process: `python -m services.agent [migrate]`."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from chatmind.agent.v1 import agent_service_pb2_grpc, run_service_pb2_grpc
from grpc import aio

from services.agent.api import agent_servicer, run_servicer
from services.agent.api.agent_servicer import AgentServicer
from services.agent.api.run_servicer import RunServicer
from services.agent.api.watch_calls import WatchCalls
from services.agent.clients.extensions import Extensions, HookKind, load_hooks, load_tools
from services.agent.clients.knowledge import IDEMPOTENT_METHODS, KnowledgeClient
from services.agent.clients.mcp.file import load_mcp_servers
from services.agent.clients.mcp.servers import open_mcp
from services.agent.clients.model_access import ModelsFileError
from services.agent.clients.model_http import ModelTimeouts
from services.agent.clients.models import open_models
from services.agent.clients.models_file import ModelSettings, load_models
from services.agent.clients.sql.file import load_databases
from services.agent.clients.sql.opening import open_databases
from services.agent.clients.web import WebClient
from services.agent.domain.agents import Agents
from services.agent.domain.approvals import Approvals
from services.agent.domain.hints import CHANNEL
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.hooks.shipped import SHIPPED
from services.agent.domain.mcp.access import McpAccess
from services.agent.domain.mcp.ports import McpServers
from services.agent.domain.mcp.source import McpTools
from services.agent.domain.memory.memories import Memories
from services.agent.domain.places import Places
from services.agent.domain.ports import ModelRegistry, SqlDatabase, Tool
from services.agent.domain.queue import RunQueue
from services.agent.domain.replay.replays import Replays
from services.agent.domain.runs import Runs
from services.agent.domain.sessions import Sessions
from services.agent.domain.stores import SessionStore
from services.agent.domain.tools.agent_tools import AgentTools
from services.agent.domain.tools.calculator import calculator_tool
from services.agent.domain.tools.current_time import current_time_tool
from services.agent.domain.tools.execute import ToolBounds
from services.agent.domain.tools.fetch.tool import HttpFetch
from services.agent.domain.tools.query_knowledge import QueryKnowledge
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import (
    Calendar,
    Continuations,
    KnowledgeTools,
    RegisteredTools,
)
from services.agent.domain.tools.sql.tool import QuerySql
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.domain.watch.watch import Watch
from services.agent.holding import WorkerLimits
from services.agent.settings import AgentServiceSettings
from services.agent.store.memory.scratch import MemoryScratch
from services.agent.store.postgres.agents import PostgresAgentStore
from services.agent.store.postgres.approvals import PostgresApprovalStore
from services.agent.store.postgres.call_history import PostgresCallHistory
from services.agent.store.postgres.memories import PostgresMemoryStore
from services.agent.store.postgres.messages import PostgresMessageStore
from services.agent.store.postgres.news import PostgresNewsStore
from services.agent.store.postgres.queue import PostgresRunQueue
from services.agent.store.postgres.recordings import PostgresRecordings
from services.agent.store.postgres.runs import PostgresRunStore
from services.agent.store.postgres.schema import MIGRATIONS, SCHEMA
from services.agent.store.postgres.sessions import PostgresSessionStore
from services.agent.store.postgres.wholes import PostgresCutResults
from services.agent.worker import Worker
from services.common.bus.open import Bus, open_bus
from services.common.clock import now
from services.common.db import Pool
from services.common.identity import IdentityVerifier, load_trusted_keys
from services.common.ids import new_id
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import AuthenticationInterceptor
from services.common.logging import configure_logging
from services.common.paging import PageTokens
from services.common.process import run_service, until_stopped
from services.common.schema import migrate_schema, open_schema
from services.common.server import Register, RunningServer, serve
from services.common.settings import read_settings
from services.common.tasks import background_tasks
from services.common.upstream import open_upstream

_NAME = "agent"
_DOMAIN = "agent.chatmind"
_APPLICATION = "chatmind-agent"
_CALLERS = frozenset({"gateway"})
_SERVICES = (agent_servicer.SERVICE_NAME, run_servicer.SERVICE_NAME)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What both roles are made of.

    Attributes:
        settings: of this process.
        pool: the database.
        bus: hears hints, and sends them.
        knowledge: the knowledge service.
        models: by name.
        tools: by name.
        hooks: by name.
        mcp: the MCP servers.
        places: of the worker, if there is one.
    """

    settings: AgentServiceSettings
    pool: Pool
    bus: Bus
    knowledge: KnowledgeClient
    models: ModelRegistry
    tools: Tools
    hooks: Hooks
    mcp: McpServers
    places: Places


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m services.agent")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="bring the database's schema up to date")
    arguments = parser.parse_args()
    settings = read_settings(AgentServiceSettings)
    configure_logging(_NAME, level=settings.log_level)
    if arguments.command == "migrate":
        run_service(_NAME, _migrate(settings))
        return
    try:
        models = load_models(settings.models_file, os.environ)
    except ModelsFileError as error:
        sys.exit(f"{_NAME}: {error}")
    run_service(_NAME, until_stopped(running_agent(settings, models)))


async def _migrate(settings: AgentServiceSettings) -> None:
    await migrate_schema(settings, schema=SCHEMA, migrations=MIGRATIONS)


@asynccontextmanager
async def running_agent(
    settings: AgentServiceSettings,
    models: Sequence[ModelSettings],
    tools: Sequence[Tool] = (),
    hooks: Sequence[HookKind] = (),
) -> AsyncIterator[RunningServer]:
    """An agent service that answers, and works, for as long as the block lasts.

    At the end what is being worked on is handed to other workers first; then the server drains.

    Args:
        settings: of this process.
        models: those that are configured, the default first.
        tools: those that there are besides the built-in ones and those that the settings name.
        hooks: likewise.

    Raises:
        ListenError: the address is taken, or none of this machine's.
        ServiceError: the database cannot be used.
        FileNotFoundError: a key is missing.
        ExtensionError: a hook or tool that the settings name cannot be had.
    """
    async with AsyncExitStack() as stack:
        parts = await _parts(settings, models, _extensions(settings, tools, hooks), stack)
        draining = asyncio.Event()
        trusted = load_trusted_keys(settings.identity_dir / "trusted", _CALLERS)
        verifier = IdentityVerifier(_NAME, trusted, clock=now)
        serves = settings.role != "worker"
        register = await _register(parts, verifier, draining, stack) if serves else _nothing
        server = await stack.enter_async_context(
            serve(
                settings,
                services=_SERVICES if serves else (),
                register=register,
                interceptors=interceptor_chain(_DOMAIN, AuthenticationInterceptor(verifier)),
                draining=draining,
            )
        )
        if settings.role != "api":
            queue = PostgresRunQueue(parts.pool, new_id=new_id)
            await stack.enter_async_context(queue.together())
            await stack.enter_async_context(_worker(parts, queue).working())
        yield server


async def _parts(
    settings: AgentServiceSettings,
    models: Sequence[ModelSettings],
    extensions: Extensions,
    stack: AsyncExitStack,
) -> _Parts:
    pool = await stack.enter_async_context(
        open_schema(
            settings,
            schema=SCHEMA,
            migrations=MIGRATIONS,
            application_name=_APPLICATION,
        )
    )
    bus = await stack.enter_async_context(
        open_bus(settings, CHANNEL, application_name=_APPLICATION)
    )
    upstream = await stack.enter_async_context(
        open_upstream(
            settings,
            "knowledge",
            caller=_NAME,
            target=settings.knowledge_address,
            idempotent_methods=IDEMPOTENT_METHODS,
        )
    )
    knowledge = KnowledgeClient(upstream.channel, upstream.calls)
    timeouts = ModelTimeouts(
        connect_seconds=settings.model_connect_seconds,
        first_byte_seconds=settings.model_first_byte_seconds,
        chunk_seconds=settings.model_chunk_seconds,
        total_seconds=settings.model_seconds,
    )
    places = Places(settings.runs_at_once, most_lent=settings.runs_waiting)
    registry = await stack.enter_async_context(
        open_models(models, timeouts=timeouts, places=places)
    )
    databases = await open_databases(load_databases(settings.sql_file, os.environ), pool)
    tools = extensions.with_tools([QueryKnowledge(knowledge), *_built_in(settings, databases)])
    hooks = extensions.with_hooks(SHIPPED, PostgresCallHistory(pool))
    declared = load_mcp_servers(settings.mcp_file, os.environ)
    taken = {spec.name for spec in tools.list()}
    mcp = await stack.enter_async_context(open_mcp(declared, taken=taken))
    return _Parts(settings, pool, bus, knowledge, registry, tools, hooks, mcp, places)


def _extensions(
    settings: AgentServiceSettings, tools: Sequence[Tool], hooks: Sequence[HookKind]
) -> Extensions:
    return Extensions(
        tools=(*tools, *load_tools(settings.tools)), hooks=(*hooks, *load_hooks(settings.hooks))
    )


def _built_in(settings: AgentServiceSettings, databases: Sequence[SqlDatabase]) -> Iterator[Tool]:
    """The tools of every process, and those that its operator has turned on."""
    yield current_time_tool(now)
    yield calculator_tool()
    if settings.fetch_rules:
        yield HttpFetch(WebClient(), settings.fetch_rules)
    if databases:
        yield QuerySql(databases)


async def _register(
    parts: _Parts, verifier: IdentityVerifier, draining: asyncio.Event, stack: AsyncExitStack
) -> Register:
    settings = parts.settings
    sessions = PostgresSessionStore(parts.pool, new_id=new_id)
    runs = PostgresRunStore(
        parts.pool,
        new_id=new_id,
        queue_limit=settings.queue_limit,
        tenant_queue_limit=settings.tenant_queue_limit,
    )
    watch = Watch(
        PostgresNewsStore(parts.pool),
        listener=parts.bus.listener,
        clock=now,
        draining=draining,
        heartbeat=settings.heartbeat_seconds,
    )
    tasks = await stack.enter_async_context(background_tasks())
    tasks.start("keep watches", watch.keep())
    watches = WatchCalls(watch, verifier, domain=_DOMAIN, write_seconds=settings.write_seconds)
    tokens = PageTokens((settings.identity_dir / f"{_NAME}.pem").read_bytes())
    agent_service = AgentServicer(
        _agents(parts),
        Sessions(sessions, messages=PostgresMessageStore(parts.pool), notifier=parts.bus.notifier),
        _memories(parts, sessions),
        tools=parts.tools,
        models=parts.models,
        hooks=parts.hooks,
        mcp=_mcp(parts),
        tokens=tokens,
    )
    approvals = Approvals(
        PostgresApprovalStore(parts.pool),
        runs=runs,
        sessions=sessions,
        notifier=parts.bus.notifier,
    )
    run_service = RunServicer(
        Runs(runs, sessions=sessions, notifier=parts.bus.notifier),
        approvals,
        watches,
        replays=_replays(parts),
        tokens=tokens,
    )

    def register(server: aio.Server) -> None:
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(agent_service, server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(run_service, server)

    return register


def _agents(parts: _Parts) -> Agents:
    return Agents(
        PostgresAgentStore(parts.pool, new_id=new_id),
        models=parts.models,
        tools=parts.tools,
        knowledge=parts.knowledge,
        hooks=parts.hooks,
        mcp=_mcp(parts),
        notifier=parts.bus.notifier,
    )


def _mcp(parts: _Parts) -> McpAccess:
    return McpAccess(parts.mcp, PostgresAgentStore(parts.pool, new_id=new_id))


def _replays(parts: _Parts) -> Replays:
    return Replays(
        PostgresRecordings(parts.pool),
        PostgresAgentStore(parts.pool, new_id=new_id),
        loop=_loop(parts),
        scratch=MemoryScratch,
    )


def _loop(parts: _Parts) -> Loop:
    bounds = ToolBounds(seconds=parts.settings.tool_seconds)
    return Loop(
        planner=Planner(
            parts.models,
            [
                RegisteredTools(parts.tools),
                KnowledgeTools(parts.knowledge),
                AgentTools(PostgresAgentStore(parts.pool, new_id=new_id)),
                Continuations(PostgresCutResults(parts.pool), bounds.result_chars),
                McpTools(parts.mcp),
                Calendar(),
            ],
            parts.hooks,
        ),
        clock=now,
        memories=PostgresMemoryStore(parts.pool),
        bounds=bounds,
        approval_time=timedelta(seconds=parts.settings.approval_seconds),
    )


def _memories(parts: _Parts, sessions: SessionStore) -> Memories:
    return Memories(
        PostgresMemoryStore(parts.pool),
        agents=PostgresAgentStore(parts.pool, new_id=new_id),
        sessions=sessions,
        models=parts.models,
        tools=parts.tools,
    )


def _nothing(server: aio.Server) -> None:
    """A worker serves nothing but its health."""


def _worker(parts: _Parts, queue: RunQueue) -> Worker:
    settings = parts.settings
    return Worker(
        queue,
        _loop(parts).run,
        places=parts.places,
        listener=parts.bus.listener,
        notifier=parts.bus.notifier,
        limits=WorkerLimits(
            lease=timedelta(seconds=settings.lease_seconds),
            crash_limit=settings.crash_limit,
        ),
    )
