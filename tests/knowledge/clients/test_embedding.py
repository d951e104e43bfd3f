"""The client of the embedding service, over real gRPC."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2

from cli.local.identity_keys import ensure_identity_keys
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.errors import (
    InvalidArgumentError,
    ResourceExhaustedError,
    ServiceError,
    UnauthenticatedError,
)
from services.common.identity import Identity, IdentitySigner, load_signing_key
from services.knowledge.clients.embedding import EmbeddingClient
from services.knowledge.domain.embedding import NotEmbeddableError, Purpose
from services.knowledge.domain.errors import (
    EmbeddingUnavailableError,
    UnknownEmbeddingModelError,
)
from services.knowledge.domain.models import EmbeddingSpace
from tests.knowledge.fake_embedding import (
    DIMENSIONS,
    MODEL,
    OTHER_MODEL,
    EmbeddingServer,
    FakeEmbedding,
    UnknownModelError,
    bigram_vector,
)

ALICE = Identity("acme", "alice")


class ScriptedEmbedding(FakeEmbedding):
    """Answers as a test wants it to, where it wants that.

    Attributes:
        answer: makes the answer, or raises.
    """

    answer: Callable[[Any], Any] | None = None

    async def Embed(self, request: Any, context: Any) -> Any:  # noqa: N802 - by contract
        """What the test wants."""
        if self.answer is None:
            return await super().Embed(request, context)
        return self.answer(request)


class Bench:
    """A client, and the service it asks."""

    def __init__(self, client: EmbeddingClient, service: ScriptedEmbedding) -> None:
        self.client = client
        self.service = service
        self.server: EmbeddingServer | None = None

    async def embed(self, *texts: str, model: str = MODEL) -> Any:
        """The vectors of texts of a document."""
        return await self.client.embed(texts, model=model, purpose=Purpose.DOCUMENT, identity=ALICE)

    def answers(self, embeddings: list[list[float]], *, dimensions: int) -> None:
        """Let the service answer with these vectors."""
        self.service.answer = lambda request: embedding_service_pb2.EmbedResponse(
            model=request.model,
            dimensions=dimensions,
            embeddings=[embedding_pb2.Embedding(values=values) for values in embeddings],
        )

    def refuses(self, error: ServiceError) -> None:
        """Let the service refuse."""

        def refuse(_: Any) -> Any:
            raise error

        self.service.answer = refuse


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A client with a service."""
    ensure_identity_keys(tmp_path)
    service = ScriptedEmbedding()
    server = EmbeddingServer(service, tmp_path / "embedding")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.kill)
        await server.start()
        channel = await stack.enter_async_context(
            open_channel(f"127.0.0.1:{server.port}", max_message_bytes=2**20)
        )
        key = load_signing_key(tmp_path / "knowledge" / "knowledge.pem")
        signer = IdentitySigner("knowledge", key, audience="embedding", clock=now)
        client = EmbeddingClient(channel, OutgoingCalls(signer), seconds=5, query_seconds=5)
        made = Bench(client, service)
        made.server = server
        yield made


class TestModels:
    async def test_tells_what_can_be_asked_for(self, bench: Bench) -> None:
        first, second = await bench.client.models(identity=ALICE)

        assert (first.space, first.is_default) == (EmbeddingSpace(MODEL, DIMENSIONS), True)
        assert (second.space.model, second.is_default) == (OTHER_MODEL, False)
        assert (first.max_input_tokens, first.max_batch_size, first.digest) == (
            512,
            32,
            "weights-1",
        )


class TestEmbed:
    async def test_gives_vectors_in_the_order_of_the_texts(self, bench: Bench) -> None:
        batch = await bench.embed("one", "two words")

        assert batch.space == EmbeddingSpace(MODEL, DIMENSIONS)
        assert batch.digest == "weights-1"
        assert [each.token_count for each in batch.embedded] == [1, 2]
        for text, each in zip(("one", "two words"), batch.embedded, strict=True):
            assert pytest.approx(bigram_vector(text), abs=1e-6) == list(each.vector)

    async def test_asks_for_the_user_and_says_what_for(self, bench: Bench) -> None:
        await bench.client.embed(["a question"], model=MODEL, purpose=Purpose.QUERY, identity=ALICE)

        assert {ALICE} == bench.service.callers
        assert bench.service.queries == ["a question"]


class TestAnswersThatAreNone:
    @pytest.mark.parametrize(
        ("embeddings", "dimensions"),
        [
            ([], 2),
            ([[1.0, 0.0]], 2),
            ([[1.0, 0.0]] * 3, 2),
            ([[1.0, 0.0], [1.0]], 2),
            ([[1.0, 0.0], []], 2),
            ([[1.0, 0.0], [float("nan"), 0.0]], 2),
            ([[1.0, 0.0], [float("inf"), 0.0]], 2),
            ([[float("inf"), float("-inf")], [1.0, 0.0]], 2),
            ([[1.0, 0.0], [1.0, 0.0]], 3),
        ],
    )
    async def test_are_told_with_model_expected_and_received(
        self, bench: Bench, embeddings: list[list[float]], dimensions: int
    ) -> None:
        bench.answers(embeddings, dimensions=dimensions)

        with pytest.raises(EmbeddingUnavailableError, match=MODEL):
            await bench.embed("one", "two")


class TestRefusals:
    async def test_a_text_that_cannot_be_embedded_is_told_by_its_place(self, bench: Bench) -> None:
        bench.service.poison = "pill"

        with pytest.raises(NotEmbeddableError) as caught:
            await bench.embed("fine", "a pill", "fine", "another pill")

        assert caught.value.indexes == (1, 3)

    async def test_a_refused_batch_is_not_asked_for_again(self, bench: Bench) -> None:
        bench.refuses(InvalidArgumentError.of_field("texts[0]", "is blank"))

        with pytest.raises(NotEmbeddableError) as caught:
            await bench.embed(" ")

        assert caught.value.indexes == ()

    async def test_an_unknown_model_is_told_with_those_that_are_known(self, bench: Bench) -> None:
        bench.refuses(UnknownModelError("x", metadata={"model": "no-such", "known": "a,b"}))

        with pytest.raises(UnknownEmbeddingModelError) as caught:
            await bench.embed("x", model="no-such")

        assert (caught.value.model, caught.value.known) == ("no-such", ("a", "b"))

    @pytest.mark.parametrize(
        "error",
        [
            ResourceExhaustedError("Too many texts wait."),
            UnauthenticatedError("Who are you?"),
            ServiceError("secret of the inside"),
        ],
    )
    async def test_anything_else_is_unavailability_without_its_text(
        self, bench: Bench, error: ServiceError
    ) -> None:
        bench.refuses(error)

        with pytest.raises(EmbeddingUnavailableError) as caught:
            await bench.embed("x")

        assert error.message not in caught.value.message

    async def test_so_is_a_service_that_is_not_there(self, bench: Bench) -> None:
        assert bench.server is not None
        await bench.server.kill()

        with pytest.raises(EmbeddingUnavailableError):
            await bench.embed("x")
        with pytest.raises(EmbeddingUnavailableError):
            await bench.client.models(identity=ALICE)
