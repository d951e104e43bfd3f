import math
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import numpy as np
import pytest

from services.embedding.clients.http import JsonClient
from services.embedding.clients.ollama import OllamaBackend
from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.isolation import embed_each
from services.embedding.domain.models import (
    BackendKind,
    Fault,
    ModelName,
    ModelSpec,
    Prefixes,
    Purpose,
    Vector,
)
from services.embedding.domain.ports import Backend
from tests.embedding import reply_table
from tests.embedding.clients.backend_contract import BackendContract, vectors
from tests.embedding.fake_engines import FakeOllama
from tests.embedding.fake_http import Reply
from tests.embedding.memory_backend import SPEC, toy_vector

OLLAMA = ModelSpec(
    name=ModelName("bge-m3"),
    kind=BackendKind.OLLAMA,
    dimensions=SPEC.dimensions,
    max_input_tokens=2048,
    max_batch_size=256,
)


def make_backend(
    http: httpx.AsyncClient,
    spec: ModelSpec = OLLAMA,
    *,
    prefixes: Prefixes | None = None,
    seconds: float = 5,
) -> OllamaBackend:
    return OllamaBackend(
        JsonClient(http),
        spec,
        prefixes=prefixes or Prefixes(),
        seconds=seconds,
        check_seconds=0.5,
    )


@pytest.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    fake = FakeOllama()
    async with fake.serving():
        yield fake


@pytest.fixture
async def http(ollama: FakeOllama) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=ollama.url, verify=False) as http:
        yield http


@pytest.fixture
async def backend(http: httpx.AsyncClient, ollama: FakeOllama) -> OllamaBackend:
    """A backend that was checked once."""
    backend = make_backend(http)
    await backend.check()
    ollama.requests.clear()
    return backend


class TestContract(BackendContract):
    @pytest.fixture
    def backend(self, http: httpx.AsyncClient) -> Backend:
        return make_backend(http)


class TestRequest:
    async def test_texts_go_in_one_call_that_forbids_silent_cuts(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        await backend.embed(["a", "b"], Purpose.DOCUMENT)

        (request,) = ollama.requests
        assert (request.method, request.path) == ("POST", "/api/embed")
        assert request.body == {"model": "bge-m3", "input": ["a", "b"], "truncate": False}

    async def test_a_model_s_prefix_stands_before_each_text(
        self, http: httpx.AsyncClient, ollama: FakeOllama
    ) -> None:
        backend = make_backend(http, prefixes=Prefixes(query="query: ", document=""))

        await backend.embed(["a"], Purpose.QUERY)
        await backend.embed(["a"], Purpose.DOCUMENT)

        requests = ollama.asked("/api/embed")
        assert [each.body["input"] for each in requests if isinstance(each.body, dict)] == [
            ["query: a"],
            ["a"],
        ]


class TestCheck:
    async def test_the_digest_is_told(self, backend: OllamaBackend) -> None:
        await backend.check()

        assert backend.state.ready
        assert backend.state.digest == "sha256:7907646426070047"

    async def test_a_model_with_a_tag_is_found_by_its_whole_name(
        self, http: httpx.AsyncClient, ollama: FakeOllama
    ) -> None:
        ollama.models = {"bge-m3:567m": "abc"}

        tagged = make_backend(http, replace(OLLAMA, name=ModelName("bge-m3:567m")))
        untagged = make_backend(http)
        await tagged.check()
        await untagged.check()

        assert (tagged.state.ready, untagged.state.ready) == (True, False)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(200, {"models": []}),
            Reply(200, {"models": None}),
            Reply(200, {"models": [None, {"name": 7}]}),
            Reply(200, []),
            Reply(200, b"<html>"),
            Reply(404, b"not here"),
            Reply(500, {"error": "no"}),
        ],
    )
    async def test_whatever_else_comes_it_is_not_ready(
        self, backend: OllamaBackend, ollama: FakeOllama, reply: Reply
    ) -> None:
        await backend.check()
        ollama.override = lambda _: reply

        await backend.check()

        assert not backend.state.ready

    async def test_it_is_ready_again_when_the_model_has_come(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.models, models = {}, ollama.models
        await backend.check()
        assert not backend.state.ready

        ollama.models = models
        await backend.check()
        assert backend.state.ready


class TestUnavailable:
    async def test_nobody_there(self) -> None:
        async with httpx.AsyncClient(base_url="http://127.0.0.1:9", verify=False) as http:
            backend = make_backend(http)
            with pytest.raises(BackendUnavailableError, match="Ollama: it cannot be reached") as e:
                await backend.embed(["a"], Purpose.QUERY)

        assert e.value.metadata == {"backend": "ollama", "model": "bge-m3"}
        assert not backend.state.ready

    async def test_too_slow(self, http: httpx.AsyncClient, ollama: FakeOllama) -> None:
        ollama.hold.clear()
        backend = make_backend(http, seconds=0.1)

        with pytest.raises(BackendUnavailableError, match=r"within 0\.1 s"):
            await backend.embed(["a"], Purpose.QUERY)

        assert len(ollama.asked("/api/embed")) == 1
        assert not backend.state.ready

    async def test_once_not_ready_it_is_not_asked_before_it_is_there_again(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.override = lambda _: Reply(503, {"error": "busy"})
        for _ in range(3):
            with pytest.raises(BackendUnavailableError, match="HTTP 503"):
                await backend.embed(["a"], Purpose.QUERY)
        assert len(ollama.asked("/api/embed")) == 1

        ollama.override = lambda _: None
        assert vectors(await backend.embed(["a"], Purpose.QUERY))

    async def test_a_server_without_the_route_is_told_from_one_without_the_model(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.override = lambda _: Reply(404, b"404 page not found")

        with pytest.raises(BackendUnavailableError, match="update Ollama"):
            await backend.embed(["a"], Purpose.QUERY)

    async def test_a_missing_model_is_named_with_its_remedy(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.models = {}

        with pytest.raises(BackendUnavailableError, match="run 'ollama pull bge-m3'"):
            await backend.embed(["a"], Purpose.QUERY)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(200, b"<html>log in</html>"),
            Reply(200, b""),
            Reply(200, [1]),
            Reply(302, b"", {"location": "/login"}),
            Reply(429, {"error": "busy"}),
            Reply(503, {"error": "busy"}),
        ],
    )
    async def test_what_is_not_ollama_s_answer(
        self, backend: OllamaBackend, ollama: FakeOllama, reply: Reply
    ) -> None:
        ollama.override = lambda _: reply

        with pytest.raises(BackendUnavailableError):
            await embed_each(backend, ["a", "b"], purpose=Purpose.DOCUMENT)

        assert len(ollama.requests) == 1

    @pytest.mark.parametrize(
        "reply", [Reply(500, b"<html>oops</html>"), Reply(500, {"error": "out of memory"})]
    )
    async def test_an_engine_that_fails_on_anything(
        self, backend: OllamaBackend, ollama: FakeOllama, reply: Reply
    ) -> None:
        ollama.override = lambda _: reply

        with pytest.raises(BackendUnavailableError, match="HTTP 500"):
            await embed_each(backend, [f"{at}" for at in range(32)], purpose=Purpose.DOCUMENT)

        assert len(ollama.requests) == 2

    async def test_its_words_stay_inside(self, backend: OllamaBackend, ollama: FakeOllama) -> None:
        ollama.override = lambda _: Reply(500, {"error": "at /srv/models/secret.gguf"})

        with pytest.raises(BackendUnavailableError) as raised:
            await embed_each(backend, ["a"], purpose=Purpose.QUERY)

        assert "secret" not in repr(raised.value.metadata) + raised.value.message


class TestRefusedTexts:
    async def test_a_text_that_gives_nan_is_found_among_five_in_few_calls(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        texts = [f"Text of part {at}." for at in range(1, 6)]
        texts[2] += " — poison pill."

        found = await embed_each(backend, texts, purpose=Purpose.DOCUMENT)

        assert [isinstance(each, Vector) for each in found] == [True, True, False, True, True]
        assert found[2] == Fault("a vector", "HTTP 500")
        assert len(ollama.requests) <= 2 + 2 * math.ceil(math.log2(5))

    async def test_some_versions_answer_400_for_nan(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        reply = Reply(400, {"error": "embedding contains NaN or Inf values"})
        ollama.override = lambda request: reply if "poison" in f"{request.body}" else None

        found = await embed_each(backend, ["good", "poison"], purpose=Purpose.DOCUMENT)

        assert [isinstance(each, Vector) for each in found] == [True, False]

    async def test_a_window_over_the_whole_call_only_splits_it(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        too_long = Reply(400, {"error": "the input length exceeds the context length"})
        ollama.override = lambda request: (
            too_long if isinstance(request.body, dict) and len(request.body["input"]) > 2 else None
        )

        texts = [f"text {at}" for at in range(7)]
        found = vectors(await embed_each(backend, texts, purpose=Purpose.DOCUMENT))

        for text, vector in zip(texts, found, strict=True):
            wanted = toy_vector(text)
            assert isinstance(wanted, Vector)
            assert np.allclose(vector.values, wanted.values)
            assert not vector.truncated

    async def test_a_lone_refused_text_is_told_apart_from_a_sick_engine(
        self, backend: OllamaBackend
    ) -> None:
        with pytest.raises(TextsRefusedError):
            await backend.embed(["poison"], Purpose.QUERY)

        assert await embed_each(backend, ["poison"], purpose=Purpose.QUERY) == [
            Fault("a vector", "HTTP 500")
        ]
        assert backend.state.ready


class TestTruncation:
    async def test_a_text_longer_than_the_window_is_embedded_as_far_as_it_surely_fits(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        (found,) = vectors(await backend.embed(["word " * 3000], Purpose.DOCUMENT))

        assert found.truncated
        assert 0 < found.token_count <= 2046
        assert len(ollama.requests) == 2

    async def test_characters_are_not_cut_in_two(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.window = 600

        (found,) = vectors(await backend.embed(["字 " * 3000], Purpose.DOCUMENT))

        body = ollama.requests[1].body
        assert isinstance(body, dict)
        assert ("字 " * 3000).startswith(body["input"][0])
        assert (found.token_count, found.truncated) == (511, True)

    async def test_a_silent_cut_at_a_window_is_noticed(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.silent = True

        (cut,) = vectors(await backend.embed(["word " * 3000], Purpose.DOCUMENT))
        (whole,) = vectors(await backend.embed(["word " * 2000], Purpose.DOCUMENT))

        assert (cut.token_count, cut.truncated) == (2048, True)
        assert (whole.token_count, whole.truncated) == (2000, False)

    async def test_a_model_with_a_larger_window_reads_on(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.window = 8192

        (found,) = vectors(await backend.embed(["word " * 3000], Purpose.DOCUMENT))

        assert (found.token_count, found.truncated) == (3000, False)

    async def test_a_short_text_refused_for_its_length_is_refused(
        self, backend: OllamaBackend, ollama: FakeOllama
    ) -> None:
        ollama.window = 2

        with pytest.raises(TextsRefusedError):
            await backend.embed(["four words are enough"], Purpose.DOCUMENT)

        assert len(ollama.requests) == 1

    @pytest.mark.parametrize("count", [None, "7", -1, 0, 2**40, True, 1.5])
    async def test_an_odd_token_count_is_not_passed_on(
        self, backend: OllamaBackend, ollama: FakeOllama, count: object
    ) -> None:
        row = [1.0] * SPEC.dimensions
        ollama.override = lambda _: Reply(200, {"embeddings": [row], "prompt_eval_count": count})

        (found,) = vectors(await backend.embed(["a"], Purpose.QUERY))

        assert (found.token_count, found.truncated) == (0, False)


class TestRepliesThatUsersMet:
    @pytest.mark.parametrize("item", reply_table.items("/api/"), ids=str)
    async def test_a_reply_of_the_table_is_judged_as_it_says(
        self, http: httpx.AsyncClient, ollama: FakeOllama, item: reply_table.Item
    ) -> None:
        backend = make_backend(http, replace(OLLAMA, dimensions=reply_table.DIMENSIONS))
        await backend.check()
        ollama.override = lambda _: Reply(200, item.reply)

        await reply_table.judge(backend, item)
