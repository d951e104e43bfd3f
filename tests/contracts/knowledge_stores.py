"""What the suites of the knowledge stores share: the stores, and values to put into them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from services.common.db import Pool, open_pool
from services.common.identity import Identity, Role
from services.common.ids import new_id
from services.common.session import open_connection
from services.common.text import Json
from services.knowledge.domain.embedding import Embedded, text_digest, vector
from services.knowledge.domain.ingest.job import IngestedDocument, IngestJob, NewChunk
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.models import (
    AcceptedRequest,
    BaseSettings,
    BaseType,
    ChunkId,
    ContentId,
    Document,
    DocumentId,
    EmbeddingSpace,
    FreshIds,
    KnowledgeBase,
    KnowledgeBaseId,
    RequestId,
    Upload,
    Visibility,
)
from services.knowledge.domain.ports import BaseStore, ChunkIndex, DocumentStore, IngestQueue
from services.knowledge.store.memory.bases import MemoryBases
from services.knowledge.store.memory.chunks import MemoryChunks
from services.knowledge.store.memory.documents import MemoryDocuments
from services.knowledge.store.memory.queue import MemoryIngestQueue
from services.knowledge.store.memory.state import MemoryState
from services.knowledge.store.postgres.bases import PostgresBases
from services.knowledge.store.postgres.chunks import PostgresChunks
from services.knowledge.store.postgres.documents import PostgresDocuments
from services.knowledge.store.postgres.queue import PostgresIngestQueue
from services.knowledge.store.postgres.tables import ChunkTables
from services.knowledge.store.postgres.vectors import register_vectors
from tests.conftest import PostgresServer
from tests.pgbouncer import PgBouncer

ALICE = Identity("acme", "alice")
BOB = Identity("acme", "bob")
ADMIN = Identity("acme", "root", frozenset({Role.ADMIN}))
STRANGER = Identity("other", "alice")
SPACE = EmbeddingSpace("tiny", 3)
LEASE = 30.0

_NEVER = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stores:
    """The four ports over one and the same state."""

    bases: BaseStore
    documents: DocumentStore
    chunks: ChunkIndex
    queue: IngestQueue

    async def base(
        self,
        owner: Identity = ALICE,
        visibility: Visibility = Visibility.PRIVATE,
        *,
        name: str = "notes",
        space: EmbeddingSpace = SPACE,
    ) -> KnowledgeBase:
        """A base, stored."""
        base = a_base(owner, visibility, name=name, space=space)
        return await self.bases.create_base(base, request=None)

    async def document(
        self,
        base: KnowledgeBase,
        name: str = "a.md",
        content: bytes = b"text",
        *,
        metadata: Mapping[str, Json] | None = None,
    ) -> Document:
        """A document, stored by its base's owner."""
        owner = Identity(base.tenant, base.owner_user_id)
        upload = an_upload(base.id, name, content, metadata=metadata)
        stored = await self.documents.put_document(
            upload, ids=fresh_ids(), viewer=owner, request=None
        )
        assert stored is not None
        return stored

    async def claimed(self) -> IngestJob:
        """The next document of the queue, claimed."""
        job = await self.queue.claim(lease=LEASE)
        assert job is not None
        return job

    async def ingested(
        self, base: KnowledgeBase, name: str, vectors: Mapping[str, Sequence[float]]
    ) -> Document:
        """A document that is searchable, one chunk for each text."""
        content = "\n".join((name, *vectors)).encode()
        document = await self.document(base, name, content)
        await self.queue.finish(await self.claimed(), a_result(vectors))
        found = await self.documents.get_document(
            document.id, viewer=Identity(base.tenant, base.owner_user_id)
        )
        assert found is not None
        return found


def memory_stores() -> Stores:
    """The stores in memory."""
    state = MemoryState()
    return Stores(
        MemoryBases(state), MemoryDocuments(state), MemoryChunks(state), MemoryIngestQueue(state)
    )


@asynccontextmanager
async def postgres_stores(dsn: str, *, pooled: bool = False) -> AsyncIterator[Stores]:
    """The stores over a migrated database."""
    async with open_knowledge_pool(dsn, pooled=pooled) as pool:
        tables = ChunkTables()
        yield Stores(
            PostgresBases(pool, tables),
            PostgresDocuments(pool, tables),
            PostgresChunks(pool, tables),
            PostgresIngestQueue(pool, tables),
        )


@asynccontextmanager
async def open_knowledge_pool(dsn: str, *, pooled: bool = False) -> AsyncIterator[Pool]:
    """A pool as the service opens it."""
    async with open_pool(
        dsn,
        schema="knowledge",
        application_name="test",
        pooled=pooled,
        on_connect=register_vectors,
    ) as pool:
        yield pool


def a_base(
    owner: Identity = ALICE,
    visibility: Visibility = Visibility.PRIVATE,
    *,
    name: str = "notes",
    space: EmbeddingSpace = SPACE,
) -> KnowledgeBase:
    """A base, not stored."""
    return KnowledgeBase(
        id=KnowledgeBaseId(new_id()),
        tenant=owner.tenant,
        owner_user_id=owner.user_id,
        settings=BaseSettings(name, "what is in it", ChunkPolicy(64, 8), visibility),
        type=BaseType.KNOWLEDGE,
        space=space,
        embed_field=EmbedField.TITLE_AND_CONTENT,
        create_time=_NEVER,
        update_time=_NEVER,
    )


def an_upload(
    base_id: KnowledgeBaseId,
    name: str = "a.md",
    content: bytes = b"text",
    *,
    media_type: str = "text/markdown",
    metadata: Mapping[str, Json] | None = None,
) -> Upload:
    """An upload with its hash."""
    return Upload(
        knowledge_base_id=base_id,
        display_name=name,
        media_type=media_type,
        content=content,
        content_hash=hashlib.sha256(content).hexdigest(),
        metadata=metadata or {},
    )


def fresh_ids() -> FreshIds:
    """Ids for a new document."""
    return FreshIds(DocumentId(new_id()), ContentId(new_id()))


def a_request(content: str, *, request_id: str | None = None) -> AcceptedRequest:
    """A request id that stands for `content`."""
    digest = hashlib.sha256(content.encode()).digest()
    return AcceptedRequest("create", RequestId(request_id or new_id()), digest)


def a_result(
    vectors: Mapping[str, Sequence[float]],
    *,
    title: str = "",
    metadata: Mapping[str, Json] | None = None,
    digest: str = "weights-1",
) -> IngestedDocument:
    """What an ingestion brings: one chunk for each text, with its vector."""
    chunks = tuple(
        NewChunk(
            id=ChunkId(new_id()),
            piece=a_piece(text, ordinal),
            embedded=Embedded(vector(list(values)), token_count=7, truncated=False),
            text_digest=text_digest(text),
        )
        for ordinal, (text, values) in enumerate(vectors.items())
    )
    return IngestedDocument(title, metadata or {}, digest, chunks)


def a_piece(text: str, ordinal: int = 0) -> Piece:
    """A piece of one line."""
    return Piece(
        heading_path=("Top", text),
        text=text,
        embed_text=f"Top > {text}\n{text}",
        start_line=ordinal + 1,
        end_line=ordinal + 1,
        section_ordinal=ordinal,
        piece_ordinal=ordinal,
        token_count=5,
    )


@pytest.fixture(scope="session")
def knowledge_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a database that tests share; each empties it first, see `emptied`."""
    with asyncio.Runner() as runner:
        lent = postgres_server.database(template="chatmind_template")
        yield runner.run(lent.__aenter__())
        runner.run(lent.__aexit__(None, None, None))


@pytest.fixture(params=["memory", "postgres", "pooled"])
def addresses(request: pytest.FixtureRequest) -> tuple[str, str] | None:
    """Where the stores' database is, and how they reach it; None for those in memory."""
    if request.param == "memory":
        return None
    found: str = request.getfixturevalue("knowledge_database")
    if request.param == "postgres":
        return found, found
    pooler: PgBouncer = request.getfixturevalue("pooler")
    return found, pooler.dsn(found)


@pytest.fixture
async def stores(addresses: tuple[str, str] | None) -> AsyncIterator[Stores]:
    """Empty stores of each kind."""
    if addresses is None:
        yield memory_stores()
        return
    direct, dsn = addresses
    await emptied(direct)
    async with postgres_stores(dsn, pooled=dsn != direct) as made:
        yield made


async def emptied(dsn: str) -> str:
    """The same database with no row left of another test."""
    async with open_connection(dsn, application_name="test") as session:
        rows = await session.fetch(
            "SELECT tablename FROM pg_tables "
            "WHERE schemaname = 'knowledge' AND tablename NOT IN "
            "('schema_migration', 'embedding_space')"
        )
        tables = ", ".join(f"knowledge.{row['tablename']}" for row in rows)
        await session.execute(f"TRUNCATE {tables}")
    return dsn
