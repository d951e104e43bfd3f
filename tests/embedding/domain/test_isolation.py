import math

import pytest

from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.isolation import CONTROL_TEXT, embed_each
from services.embedding.domain.models import Fault, Purpose, Vector
from tests.embedding.memory_backend import MemoryBackend, toy_vector


async def faulty(backend: MemoryBackend, texts: list[str]) -> set[int]:
    """The indexes of the texts that get a fault; the others get their own vector."""
    found = await embed_each(backend, texts, purpose=Purpose.DOCUMENT)
    assert len(texts) == len(found)
    for text, outcome in zip(texts, found, strict=True):
        if isinstance(outcome, Vector):
            wanted = toy_vector(text)
            assert isinstance(wanted, Vector)
            assert wanted.values.tolist() == outcome.values.tolist()
    return {index for index, outcome in enumerate(found) if isinstance(outcome, Fault)}


class TestEmbedEach:
    async def test_good_texts_take_one_call(self) -> None:
        backend = MemoryBackend()

        assert set() == await faulty(backend, ["a", "b", "c"])
        assert len(backend.calls) == 1

    @pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 31, 32])
    async def test_one_guilty_text_is_found_in_few_calls_wherever_it_stands(
        self, count: int
    ) -> None:
        for guilty in range(count):
            backend = MemoryBackend()
            texts = ["poison" if at == guilty else f"text {at}" for at in range(count)]

            assert {guilty} == await faulty(backend, texts)
            assert len(backend.calls) <= 2 + 2 * math.ceil(math.log2(count))

    async def test_however_many_are_guilty_the_calls_stay_below_twice_the_texts(self) -> None:
        for guilty in range(32):
            backend = MemoryBackend()
            texts = [f"poison {at}" if guilty >> (at % 5) & 1 else f"{at}" for at in range(12)]
            wanted = {at for at, text in enumerate(texts) if "poison" in text}

            assert wanted == await faulty(backend, texts)
            assert len(backend.calls) <= 24

    async def test_a_refused_text_tells_what_came(self) -> None:
        found = await embed_each(MemoryBackend(), ["poison"], purpose=Purpose.QUERY)

        assert [Fault("a vector", "HTTP 500")] == found

    async def test_a_backend_that_fails_on_plain_text_is_to_blame_itself(self) -> None:
        backend = MemoryBackend()
        backend.broken = TextsRefusedError("HTTP 500")

        with pytest.raises(BackendUnavailableError, match="HTTP 500"):
            await embed_each(backend, [f"{at}" for at in range(100)], purpose=Purpose.DOCUMENT)

        assert len(backend.calls) == 2
        assert backend.calls[1][0] == [CONTROL_TEXT]

    async def test_a_backend_that_is_down_is_not_asked_again(self) -> None:
        backend = MemoryBackend()
        backend.broken = BackendUnavailableError(backend.spec, "it is down")

        with pytest.raises(BackendUnavailableError):
            await embed_each(backend, ["a", "b"], purpose=Purpose.DOCUMENT)

        assert len(backend.calls) == 1
