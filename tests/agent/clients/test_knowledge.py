import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from chatmind.knowledge.v1 import (
    document_pb2,
    knowledge_base_pb2,
    knowledge_service_pb2,
    knowledge_service_pb2_grpc,
    search_pb2,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc import aio

from services.agent.clients.knowledge import IDEMPOTENT_METHODS, KnowledgeClient
from services.agent.domain.chat import KnowledgeBase, Passage
from services.agent.domain.errors import KnowledgeUnavailableError
from services.agent.domain.messages import Citation
from services.agent.domain.models import ChunkId, DocumentId, KnowledgeBaseId
from services.common.channel import OutgoingCalls
from services.common.clock import now
from services.common.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ServiceError,
    UnavailableError,
)
from services.common.identity import Identity, IdentitySigner, IdentityVerifier
from services.common.ids import new_id
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import (
    AuthenticationInterceptor,
    current_identity,
)
from tests.servicers import incomplete

ANN = Identity("acme", "ann")
BASE = KnowledgeBaseId("0190c3a5-2f6b-7c11-9d7a-5e3f1b2a4c61")
OTHER = KnowledgeBaseId("0190c3a5-2f6b-7c11-9d7a-5e3f1b2a4c62")


class MismatchError(FailedPreconditionError):
    reason = "EMBEDDING_MODEL_MISMATCH"


class EmbeddingDownError(UnavailableError):
    reason = "EMBEDDING_UNAVAILABLE"


class Service(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    """A knowledge service that holds two bases, or fails as it is told to."""

    def __init__(self) -> None:
        self.bases = {
            BASE: knowledge_base_pb2.KnowledgeBase(
                id=BASE, display_name="Handbook", description="How we work."
            ),
            OTHER: knowledge_base_pb2.KnowledgeBase(
                id=OTHER,
                display_name="Bank",
                type=knowledge_base_pb2.KnowledgeBase.TYPE_MEMORY,
            ),
        }
        self.error: ServiceError | None = None
        self.hangs = False
        self.searches: list[knowledge_service_pb2.SearchRequest] = []
        self.callers: list[Identity] = []

    async def GetKnowledgeBase(  # noqa: N802 -- named by the contract
        self, request: knowledge_service_pb2.GetKnowledgeBaseRequest, context: Any
    ) -> knowledge_service_pb2.GetKnowledgeBaseResponse:
        await self._misbehave()
        base = self.bases.get(KnowledgeBaseId(request.knowledge_base_id))
        if base is None:
            raise NotFoundError("No such base.", metadata={"id": request.knowledge_base_id})
        return knowledge_service_pb2.GetKnowledgeBaseResponse(knowledge_base=base)

    async def Search(  # noqa: N802 -- named by the contract
        self, request: knowledge_service_pb2.SearchRequest, context: Any
    ) -> knowledge_service_pb2.SearchResponse:
        await self._misbehave()
        self.searches.append(request)
        chunk = document_pb2.Chunk(
            id="c1",
            document_id="d1",
            knowledge_base_id=BASE,
            heading_path=["Backups"],
            text="On b1.",
            start_line=3,
            end_line=9,
        )
        hit = search_pb2.Hit(chunk=chunk, document_name="Handbook", score=0.75)
        return knowledge_service_pb2.SearchResponse(hits=[hit])

    async def _misbehave(self) -> None:
        self.callers.append(current_identity())
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def service() -> Service:
    return incomplete(Service)()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[KnowledgeClient]:
    key = Ed25519PrivateKey.generate()
    verifier = IdentityVerifier("knowledge", {"agent": key.public_key()}, clock=now)
    chain = interceptor_chain("knowledge.chatmind", AuthenticationInterceptor(verifier))
    server = aio.server(interceptors=list(chain))
    knowledge_service_pb2_grpc.add_KnowledgeServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    calls = OutgoingCalls(IdentitySigner("agent", key, audience="knowledge", clock=now))
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield KnowledgeClient(channel, calls, deadline_seconds=2)
    await server.stop(0)


class TestSearch:
    async def test_hits_become_passages(self, client: KnowledgeClient, service: Service) -> None:
        found = await client.search(ANN, [BASE], query="backup", top_k=3, min_score=0.5)

        assert found == [
            Passage(
                "On b1.",
                Citation(
                    "", BASE, DocumentId("d1"), ChunkId("c1"), "Handbook", ("Backups",), 3, 9, 0.75
                ),
            )
        ]
        request = service.searches[0]
        assert (request.query, request.top_k, request.min_score) == ("backup", 3, 0.5)
        assert list(request.knowledge_base_ids) == [BASE]

    async def test_it_is_asked_on_behalf_of_the_user(
        self, client: KnowledgeClient, service: Service
    ) -> None:
        await client.search(ANN, [BASE], query="backup", top_k=3)

        assert service.callers == [ANN]
        assert not service.searches[0].HasField("min_score")

    @pytest.mark.parametrize(
        ("error", "kind", "words"),
        [
            (NotFoundError("x", metadata={"id": BASE}), NotFoundError, BASE),
            (MismatchError("x"), InvalidArgumentError, "one at a time"),
            (InvalidArgumentError.of_field("query", "too long"), InvalidArgumentError, "too long"),
            (FailedPreconditionError("x"), InvalidArgumentError, "does not take"),
            (EmbeddingDownError("x"), KnowledgeUnavailableError, "cannot be searched"),
            (UnavailableError("x"), KnowledgeUnavailableError, "is unavailable"),
            (ResourceExhaustedError("x"), KnowledgeUnavailableError, "is unavailable"),
        ],
    )
    async def test_failures_are_told_in_our_words(
        self,
        client: KnowledgeClient,
        service: Service,
        error: ServiceError,
        kind: type[ServiceError],
        words: str,
    ) -> None:
        service.error = error

        with pytest.raises(kind, match=words):
            await client.search(ANN, [BASE], query="backup", top_k=3)

    async def test_a_service_that_hangs_is_given_up(
        self, client: KnowledgeClient, service: Service
    ) -> None:
        service.hangs = True
        client._deadline = 0.1

        with pytest.raises(KnowledgeUnavailableError):
            await client.search(ANN, [BASE], query="backup", top_k=3)

    async def test_a_service_that_is_not_there_is_unavailable(self) -> None:
        key = Ed25519PrivateKey.generate()
        calls = OutgoingCalls(IdentitySigner("agent", key, audience="knowledge", clock=now))
        async with aio.insecure_channel("127.0.0.1:1") as channel:
            client = KnowledgeClient(channel, calls)

            with pytest.raises(KnowledgeUnavailableError):
                await client.search(ANN, [BASE], query="backup", top_k=3)


class TestBases:
    async def test_those_that_hold_documents_and_are_seen_come(
        self, client: KnowledgeClient
    ) -> None:
        gone = KnowledgeBaseId(new_id())

        found = await client.bases(ANN, [gone, OTHER, BASE, KnowledgeBaseId("no id")])

        assert found == {BASE: KnowledgeBase(BASE, "Handbook", "How we work.")}

    async def test_a_service_that_is_down_is_told(
        self, client: KnowledgeClient, service: Service
    ) -> None:
        service.error = UnavailableError("x")

        with pytest.raises(KnowledgeUnavailableError):
            await client.bases(ANN, [BASE, OTHER])


class TestRepeatableMethods:
    def test_they_are_methods_of_the_contract(self) -> None:
        methods = knowledge_service_pb2.DESCRIPTOR.services_by_name["KnowledgeService"]

        for service, method in IDEMPOTENT_METHODS:
            assert service == methods.full_name
            assert method in methods.methods_by_name
