import time
from collections.abc import AsyncIterator

import pytest

from services.common.errors import InvalidArgumentError
from services.common.tasks import background_tasks
from services.embedding.domain.batching import Batcher
from services.embedding.domain.embed import Embedding, EmbedInput, is_blank
from services.embedding.domain.errors import BatchTooLargeError, InvalidEmbeddingError
from services.embedding.domain.models import BatchLimits, Purpose, Vector
from services.embedding.domain.registry import Registry
from tests.embedding.memory_backend import SPEC, MemoryBackend, toy_vector


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def embedding(backend: MemoryBackend) -> AsyncIterator[Embedding]:
    batcher = Batcher(
        backend,
        BatchLimits(max_texts=10, max_chars=1000, alone_above=500),
        concurrency=1,
        max_pending_texts=1000,
        max_pending_chars=100_000,
    )
    async with background_tasks() as tasks:
        tasks.start("batcher", batcher.run())
        yield Embedding(Registry([batcher], default=SPEC.name))


def asked(*texts: str) -> EmbedInput:
    return EmbedInput(model="", texts=texts, purpose=Purpose.DOCUMENT)


class TestEmbed:
    async def test_vectors_come_in_the_order_of_the_texts(self, embedding: Embedding) -> None:
        texts = [f"text {at}" for at in range(25)]

        embedded = await embedding.embed(asked(*texts))

        wanted = [each for each in map(toy_vector, texts) if isinstance(each, Vector)]
        assert [v.values.tolist() for v in wanted] == [v.values.tolist() for v in embedded.vectors]
        assert embedded.spec == SPEC
        assert embedded.digest == "sha256:toy"

    async def test_blank_texts_are_named_and_never_reach_the_backend(
        self, embedding: Embedding, backend: MemoryBackend
    ) -> None:
        with pytest.raises(InvalidArgumentError) as raised:
            await embedding.embed(asked("a", " \n", "b", "\u200b"))

        assert [each.field for each in raised.value.violations] == ["texts[1]", "texts[3]"]
        assert backend.calls == []

    async def test_more_texts_than_the_model_takes_are_refused(
        self, embedding: Embedding, backend: MemoryBackend
    ) -> None:
        with pytest.raises(BatchTooLargeError) as raised:
            await embedding.embed(asked(*["a"] * 51))

        assert raised.value.metadata == {"count": "51", "max_batch_size": "50"}
        assert backend.calls == []

    async def test_one_bad_text_fails_the_request_and_is_named(self, embedding: Embedding) -> None:
        with pytest.raises(InvalidEmbeddingError) as raised:
            await embedding.embed(asked("a", "poison", "b", "poison too"))

        assert raised.value.metadata == {
            "model": "toy",
            "indexes": "1,3",
            "expected": "a vector",
            "received": "HTTP 500",
        }

    def test_models_tell_their_state_and_the_default(self, embedding: Embedding) -> None:
        (model,) = embedding.models()

        assert model.spec == SPEC
        assert model.state.ready
        assert model.default


class TestIsBlank:
    @pytest.mark.parametrize(
        "text",
        ["", " ", "\t\r\n", "\u3000\u00a0", "\u200b\ufeff\u2060", "\x00\x1f", " " * 500 + "\u200d"],
    )
    def test_what_shows_nothing_is_blank(self, text: str) -> None:
        assert is_blank(text)

    @pytest.mark.parametrize("text", ["a", "。", " 1 ", "\ufffd", "🙂", " " * 500 + "x"])
    def test_what_shows_anything_is_not(self, text: str) -> None:
        assert not is_blank(text)

    def test_megabytes_of_nothing_are_seen_through_at_once(self) -> None:
        began = time.perf_counter()

        assert is_blank("\u200b" * 5_000_000)
        assert time.perf_counter() - began < 2
