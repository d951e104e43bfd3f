"""The knowledge service's process: `python -m services.knowledge [migrate]`."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from chatmind.knowledge.v1 import knowledge_service_pb2_grpc
from grpc import aio

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
from services.knowledge.api.servicer import SERVICE_NAME, KnowledgeServicer, UploadLimits
from services.knowledge.api.uploads import UploadSlots
from services.knowledge.clients.cutters import CutterLimits, open_cutters
from services.knowledge.clients.embedding import IDEMPOTENT_METHODS, EmbeddingClient
from services.knowledge.domain.bases import KnowledgeBases
from services.knowledge.domain.documents import Documents
from services.knowledge.domain.hints import CHANNEL
from services.knowledge.domain.ingest.batching import BatchLimits
from services.knowledge.domain.ingest.embed import PieceEmbedder
from services.knowledge.domain.ingest.run import Ingestion, IngestTools
from services.knowledge.domain.ports import Cutter
from services.knowledge.domain.previews import Previews
from services.knowledge.domain.search.query_vectors import QueryVectors
from services.knowledge.domain.search.search import Search
from services.knowledge.domain.search.vector import VectorLeg
from services.knowledge.settings import KnowledgeSettings
from services.knowledge.store.postgres.bases import PostgresBases
from services.knowledge.store.postgres.chunks import PostgresChunks
from services.knowledge.store.postgres.documents import PostgresDocuments
from services.knowledge.store.postgres.queue import PostgresIngestQueue
from services.knowledge.store.postgres.schema import EXTENSIONS, MIGRATIONS, SCHEMA
from services.knowledge.store.postgres.tables import ChunkTables
from services.knowledge.store.postgres.vectors import register_vectors
from services.knowledge.worker import Worker, WorkerLimits

_NAME = "knowledge"
_DOMAIN = "knowledge.chatmind"
_APPLICATION = "chatmind-knowledge"
_CALLERS = frozenset({"gateway", "agent"})
_PREVIEWS_AT_ONCE = 1
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Parts:
    """What both roles are made of.

    Attributes:
        settings: of this process.
        pool: the database.
        tables: the tables of chunks in it.
        bus: hears hints, and sends them.
        embedder: the embedding service.
    """

    settings: KnowledgeSettings
    pool: Pool
    tables: ChunkTables
    bus: Bus
    embedder: EmbeddingClient


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m services.knowledge")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="bring the database's schema up to date")
    arguments = parser.parse_args()
    settings = read_settings(KnowledgeSettings)
    configure_logging(_NAME, level=settings.log_level)
    run_service(
        _NAME,
        _migrate(settings)
        if arguments.command == "migrate"
        else until_stopped(running_knowledge(settings)),
    )


async def _migrate(settings: KnowledgeSettings) -> None:
    await migrate_schema(settings, schema=SCHEMA, migrations=MIGRATIONS, extensions=EXTENSIONS)


@asynccontextmanager
async def running_knowledge(settings: KnowledgeSettings) -> AsyncIterator[RunningServer]:
    """A knowledge service that answers, and ingests, for as long as the block lasts.

    At the end the documents in hand go back into the queue first; then the server drains.

    Raises:
        ListenError: the address is taken, or none of this machine's.
        ServiceError: the database cannot be used.
        FileNotFoundError: a key is missing.
    """
    async with AsyncExitStack() as stack:
        parts = await _parts(settings, stack)
        draining = asyncio.Event()
        trusted = load_trusted_keys(settings.identity_dir / "trusted", _CALLERS)
        verifier = IdentityVerifier(_NAME, trusted, clock=now)
        serves = settings.role != "worker"
        register = await _register(parts, draining, stack) if serves else _nothing
        server = await stack.enter_async_context(
            serve(
                settings,
                services=[SERVICE_NAME] if serves else [],
                register=register,
                interceptors=interceptor_chain(_DOMAIN, AuthenticationInterceptor(verifier)),
                draining=draining,
            )
        )
        if settings.role != "api":
            await _start_worker(parts, stack)
        yield server


async def _parts(settings: KnowledgeSettings, stack: AsyncExitStack) -> _Parts:
    pool = await stack.enter_async_context(
        open_schema(
            settings,
            schema=SCHEMA,
            migrations=MIGRATIONS,
            application_name=_APPLICATION,
            extensions=EXTENSIONS,
            on_connect=register_vectors,
        )
    )
    bus = await stack.enter_async_context(
        open_bus(settings, CHANNEL, application_name=_APPLICATION)
    )
    upstream = await stack.enter_async_context(
        open_upstream(
            settings,
            "embedding",
            caller=_NAME,
            target=settings.embedding_address,
            idempotent_methods=IDEMPOTENT_METHODS,
        )
    )
    embedder = EmbeddingClient(
        upstream.channel,
        upstream.calls,
        seconds=settings.batch_seconds,
        query_seconds=settings.query_seconds,
    )
    return _Parts(settings, pool, ChunkTables(), bus, embedder)


async def _register(parts: _Parts, draining: asyncio.Event, stack: AsyncExitStack) -> Register:
    settings = parts.settings
    limits = _cutter_limits(settings, seconds=settings.preview_seconds)
    cutter = await stack.enter_async_context(open_cutters(limits, count=_PREVIEWS_AT_ONCE))
    store = PostgresBases(parts.pool, parts.tables)
    chunks = PostgresChunks(parts.pool, parts.tables)
    bases = KnowledgeBases(store, parts.embedder, new_id=new_id)
    documents = Documents(
        PostgresDocuments(parts.pool, parts.tables),
        chunks,
        bases=bases,
        listener=parts.bus.listener,
        notifier=parts.bus.notifier,
        new_id=new_id,
    )
    queries = QueryVectors(parts.embedder, capacity=settings.remembered_queries)
    servicer = KnowledgeServicer(
        bases,
        documents,
        search=Search(store, VectorLeg(chunks, queries)),
        previews=Previews(cutter),
        tokens=PageTokens((settings.identity_dir / f"{_NAME}.pem").read_bytes()),
        uploads=UploadLimits(
            settings.max_upload_bytes,
            settings.upload_idle_seconds,
            UploadSlots(settings.uploads_at_once, patience=settings.upload_idle_seconds),
        ),
        draining=draining,
    )

    def register(server: aio.Server) -> None:
        knowledge_service_pb2_grpc.add_KnowledgeServiceServicer_to_server(servicer, server)

    return register


def _nothing(server: aio.Server) -> None:
    """A worker serves nothing but its health."""


async def _start_worker(parts: _Parts, stack: AsyncExitStack) -> None:
    settings = parts.settings
    slots = settings.documents_at_once
    limits = _cutter_limits(settings, seconds=settings.cut_seconds)
    cutter = await stack.enter_async_context(open_cutters(limits, count=slots))
    queue = PostgresIngestQueue(parts.pool, parts.tables)
    worker = Worker(
        queue,
        _ingestion(parts, queue, cutter),
        listener=parts.bus.listener,
        notifier=parts.bus.notifier,
        limits=WorkerLimits(
            slots=slots,
            lease=settings.lease_seconds,
            max_attempts=settings.crash_limit,
            max_retries=settings.outage_limit,
        ),
    )
    tasks = await stack.enter_async_context(background_tasks())
    tasks.start("worker", worker.run())


def _ingestion(parts: _Parts, queue: PostgresIngestQueue, cutter: Cutter) -> Ingestion:
    settings = parts.settings
    batch = BatchLimits(settings.batch_texts, settings.batch_tokens)
    return Ingestion(
        IngestTools(
            queue=queue,
            cutter=cutter,
            embedder=parts.embedder,
            pieces=PieceEmbedder(parts.embedder, batch),
            new_id=new_id,
            max_chunks=settings.max_chunks,
        )
    )


def _cutter_limits(settings: KnowledgeSettings, *, seconds: float) -> CutterLimits:
    return CutterLimits(
        seconds=seconds,
        seconds_per_megabyte=settings.cut_seconds_per_megabyte,
        memory_bytes=settings.cut_memory_megabytes * _MEGABYTE,
        patience=settings.cut_seconds,
    )
