"""A whole knowledge service in this process, over a real database and a fake embedding service."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2, search_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from chatmind.knowledge.v1.knowledge_service_pb2_grpc import KnowledgeServiceStub
from google.protobuf.struct_pb2 import Struct
from grpc import aio

from cli.local.identity_keys import ensure_identity_keys
from services.common.channel import OutgoingCalls
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner, Role, load_signing_key
from services.common.ids import new_id
from services.common.interceptors.authentication import IDENTITY_KEY
from services.knowledge.main import running_knowledge
from services.knowledge.settings import KnowledgeSettings
from tests.knowledge.fake_embedding import MESSAGE_BYTES, EmbeddingServer, FakeEmbedding

if TYPE_CHECKING:
    from chatmind.knowledge.v1.knowledge_service_pb2_grpc import KnowledgeServiceAsyncStub

ENOUGH = 20.0
"""Seconds after which something that does not happen is taken to happen never."""

READY = document_pb2.Document.STATE_READY
FAILED = document_pb2.Document.STATE_FAILED
PENDING = document_pb2.Document.STATE_PENDING
INGESTING = document_pb2.Document.STATE_INGESTING


@dataclass(frozen=True, slots=True)
class Caller:
    """One user of the service, by way of the gateway."""

    stub: "KnowledgeServiceAsyncStub"
    identity: Identity
    metadata: tuple[tuple[str, str], ...]

    async def call(self, method: str, request: Any) -> Any:
        """The answer of a unary method."""
        rpc = getattr(self.stub, method)
        return await rpc(request, metadata=self.metadata, timeout=ENOUGH)

    async def base(self, name: str = "notes", **fields: Any) -> knowledge_base_pb2.KnowledgeBase:
        """A new base."""
        base = knowledge_base_pb2.KnowledgeBase(display_name=name, **fields)
        request = pb.CreateKnowledgeBaseRequest(knowledge_base=base)
        made: pb.CreateKnowledgeBaseResponse = await self.call("CreateKnowledgeBase", request)
        return made.knowledge_base

    async def put(
        self, base_id: str, name: str, content: str | bytes, **fields: Any
    ) -> document_pb2.Document:
        """A document, stored."""
        if isinstance(fields.get("metadata"), dict):
            struct = Struct()
            struct.update(fields["metadata"])
            fields["metadata"] = struct
        request = pb.CreateDocumentRequest(
            knowledge_base_id=base_id,
            display_name=name,
            content=content.encode() if isinstance(content, str) else content,
            **fields,
        )
        made: pb.CreateDocumentResponse = await self.call("CreateDocument", request)
        return made.document

    async def upload(self, parts: Iterable[pb.UploadDocumentRequest]) -> document_pb2.Document:
        """A document that is sent in parts."""
        response = await self.stub.UploadDocument(
            iter(parts), metadata=self.metadata, timeout=ENOUGH
        )
        return response.document

    async def get(self, document_id: str) -> document_pb2.Document:
        """A document as it is now."""
        request = pb.GetDocumentRequest(document_id=document_id)
        found: pb.GetDocumentResponse = await self.call("GetDocument", request)
        return found.document

    async def settled(self, document_id: str, *, within: float = ENOUGH) -> document_pb2.Document:
        """The document once nothing more happens to it."""
        seen = [document async for document in self.watch(document_id, within=within)]
        return seen[-1]

    async def watch(
        self, document_id: str, *, within: float = ENOUGH
    ) -> AsyncIterator[document_pb2.Document]:
        """The document now and after each change."""
        request = pb.WatchDocumentRequest(document_id=document_id)
        stream = self.stub.WatchDocument(request, metadata=self.metadata, timeout=within)
        async for response in stream:
            yield response.document

    async def until(self, document_id: str, state: int) -> document_pb2.Document:
        """The document once it is in this state."""
        async for document in self.watch(document_id):
            if document.state == state:
                return document
        raise AssertionError(f"never in state {state}")

    async def ingest(
        self, base_id: str, name: str, content: str | bytes, **fields: Any
    ) -> document_pb2.Document:
        """A document, stored and settled."""
        return await self.settled((await self.put(base_id, name, content, **fields)).id)

    async def chunks(self, document_id: str) -> list[document_pb2.Chunk]:
        """All chunks of a document."""
        request = pb.ListChunksRequest(document_id=document_id, page_size=200)
        found: list[document_pb2.Chunk] = []
        while True:
            page = await self.call("ListChunks", request)
            found += page.chunks
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def search(self, base_id: str, query: str, **fields: Any) -> list[search_pb2.Hit]:
        """What answers a question."""
        request = pb.SearchRequest(knowledge_base_ids=[base_id], query=query, **fields)
        return list((await self.call("Search", request)).hits)


@dataclass(frozen=True, slots=True)
class Team:
    """Two members and an admin of one tenant, and a member of another one of the same name."""

    alice: Caller
    bob: Caller
    admin: Caller
    stranger: Caller


@dataclass(frozen=True, slots=True)
class System:
    """What a test needs of it all."""

    channel: aio.Channel
    embedding: FakeEmbedding
    embedding_server: EmbeddingServer
    calls: OutgoingCalls

    def caller(self, identity: Identity) -> Caller:
        """A user of the service."""
        metadata = self.calls.metadata(identity)
        return Caller(KnowledgeServiceStub(self.channel), identity, metadata)

    def team(self) -> "Team":
        """Users of a tenant that nobody used before, and a stranger to it."""
        tenant = f"tenant-{new_id()}"
        return Team(
            alice=self.caller(Identity(tenant, "alice")),
            bob=self.caller(Identity(tenant, "bob")),
            admin=self.caller(Identity(tenant, "root", frozenset({Role.ADMIN}))),
            stranger=self.caller(Identity(f"not-{tenant}", "alice")),
        )

    def anonymous(self, token: str = "") -> Caller:
        """Somebody without a token, or with one that is none."""
        metadata = ((IDENTITY_KEY, token),) if token else ()
        return Caller(KnowledgeServiceStub(self.channel), Identity("", ""), metadata)


@asynccontextmanager
async def open_system(folder: Path, database: str, **settings: Any) -> AsyncIterator[System]:
    """A service with these settings, and its embedding service."""
    identity = folder / "identity"
    ensure_identity_keys(identity)
    fake = FakeEmbedding()
    embedding_server = EmbeddingServer(fake, identity / "embedding")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(embedding_server.kill)
        await embedding_server.start()
        given = knowledge_settings(folder, database, port=embedding_server.port, **settings)
        running = await stack.enter_async_context(running_knowledge(given))
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ]
        target = f"127.0.0.1:{running.port}"
        channel = await stack.enter_async_context(aio.insecure_channel(target, options=options))
        key = load_signing_key(identity / "gateway" / "gateway.pem")
        signer = IdentitySigner("gateway", key, audience="knowledge", clock=now)
        yield System(channel, fake, embedding_server, OutgoingCalls(signer))


def knowledge_settings(
    folder: Path, database: str, *, port: int, **settings: Any
) -> KnowledgeSettings:
    """Settings of a service that listens where the system likes and drains at once."""
    return KnowledgeSettings(
        **{
            "CHATMIND_DATABASE_URL": database,
            "listen": "127.0.0.1:0",
            "identity_dir": folder / "identity" / "knowledge",
            "embedding_address": f"127.0.0.1:{port}",
            "drain_seconds": 0,
            "grace_seconds": 2,
            "poll_seconds": 0.2,
            **settings,
        }
    )


async def eventually(check: Any, *, within: float = ENOUGH) -> None:
    """Wait until an awaitable check holds."""
    async with asyncio.timeout(within):
        while not await check():  # noqa: ASYNC110 - what is asked has no event
            await asyncio.sleep(0.02)
