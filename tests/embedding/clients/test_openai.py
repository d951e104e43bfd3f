from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from services.embedding.clients.http import JsonClient
from services.embedding.clients.openai import OpenAIBackend
from services.embedding.domain.errors import BackendUnavailableError
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
from tests.embedding.fake_engines import FakeOpenAI
from tests.embedding.fake_http import Reply
from tests.embedding.memory_backend import SPEC

OPENAI = ModelSpec(
    name=ModelName("embed-1"),
    kind=BackendKind.OPENAI,
    dimensions=SPEC.dimensions,
    max_input_tokens=8192,
    max_batch_size=256,
)


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    fake = FakeOpenAI()
    async with fake.serving():
        yield fake


@pytest.fixture
async def http(openai: FakeOpenAI) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {openai.key}"}
    async with httpx.AsyncClient(
        base_url=f"{openai.url}/v1", headers=headers, verify=False
    ) as http:
        yield http


def make_backend(
    http: httpx.AsyncClient,
    spec: ModelSpec = OPENAI,
    *,
    prefixes: Prefixes | None = None,
    send_dimensions: bool = False,
) -> OpenAIBackend:
    return OpenAIBackend(
        JsonClient(http),
        spec,
        prefixes=prefixes or Prefixes(),
        send_dimensions=send_dimensions,
        seconds=5,
        check_seconds=0.5,
    )


@pytest.fixture
def backend(http: httpx.AsyncClient) -> OpenAIBackend:
    return make_backend(http)


class TestContract(BackendContract):
    @pytest.fixture
    def backend(self, http: httpx.AsyncClient) -> Backend:
        return make_backend(http)


class TestRequest:
    async def test_texts_go_in_one_call_for_plain_floats(
        self, backend: OpenAIBackend, openai: FakeOpenAI
    ) -> None:
        await backend.embed(["a", "b"], Purpose.DOCUMENT)

        (request,) = openai.requests
        assert (request.method, request.path) == ("POST", "/v1/embeddings")
        assert request.body == {
            "model": "embed-1",
            "input": ["a", "b"],
            "encoding_format": "float",
        }

    async def test_dimensions_are_asked_for_only_when_told_to(
        self, http: httpx.AsyncClient, openai: FakeOpenAI
    ) -> None:
        await make_backend(http, send_dimensions=True).embed(["a"], Purpose.DOCUMENT)

        assert isinstance(openai.requests[0].body, dict)
        assert openai.requests[0].body["dimensions"] == SPEC.dimensions

    async def test_a_model_s_prefix_stands_before_each_text(
        self, http: httpx.AsyncClient, openai: FakeOpenAI
    ) -> None:
        backend = make_backend(http, prefixes=Prefixes("query: ", "passage: "))

        await backend.embed(["a", "b"], Purpose.DOCUMENT)

        assert isinstance(openai.requests[0].body, dict)
        assert openai.requests[0].body["input"] == ["passage: a", "passage: b"]


class TestCheck:
    @pytest.mark.parametrize(
        ("status", "ready"), [(200, True), (404, True), (405, True), (401, False), (500, False)]
    )
    async def test_no_list_of_models_proves_nothing_but_a_refused_key_does(
        self, backend: OpenAIBackend, openai: FakeOpenAI, status: int, ready: bool
    ) -> None:
        openai.override = lambda _: Reply(status, {})

        await backend.check()

        assert backend.state.ready is ready

    async def test_nobody_there(self) -> None:
        async with httpx.AsyncClient(base_url="http://127.0.0.1:9", verify=False) as http:
            backend = make_backend(http)
            await backend.check()

        assert not backend.state.ready


class TestUnavailable:
    async def test_nobody_there(self) -> None:
        async with httpx.AsyncClient(base_url="http://127.0.0.1:9", verify=False) as http:
            with pytest.raises(BackendUnavailableError, match="cannot be reached") as raised:
                await make_backend(http).embed(["a"], Purpose.QUERY)

        assert raised.value.metadata == {"backend": "openai", "model": "embed-1"}

    async def test_a_refused_key_is_told_without_it(
        self, backend: OpenAIBackend, openai: FakeOpenAI
    ) -> None:
        openai.key = "another"

        with pytest.raises(BackendUnavailableError, match="credentials") as raised:
            await backend.embed(["a"], Purpose.QUERY)

        assert "secret" not in raised.value.message
        assert not backend.state.ready

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(404, {"error": {"message": "no such model"}}),
            Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "9"}),
            Reply(200, b"<html>log in</html>"),
            Reply(307, b"", {"location": "https://elsewhere.example"}),
        ],
    )
    async def test_what_is_no_answer_of_the_endpoint(
        self, backend: OpenAIBackend, openai: FakeOpenAI, reply: Reply
    ) -> None:
        openai.override = lambda _: reply

        with pytest.raises(BackendUnavailableError):
            await embed_each(backend, ["a", "b"], purpose=Purpose.DOCUMENT)

        assert len(openai.requests) == 1


class TestAnswer:
    async def test_vectors_go_where_their_index_says_and_are_counted_alone_only(
        self, backend: OpenAIBackend
    ) -> None:
        found = vectors(await backend.embed(["a b", "c"], Purpose.DOCUMENT))
        (single,) = vectors(await backend.embed(["a b"], Purpose.DOCUMENT))

        assert [each.token_count for each in found] == [0, 0]
        assert single.token_count == 2
        assert single.values.tolist() == found[0].values.tolist()

    async def test_a_refused_text_is_found(self, backend: OpenAIBackend) -> None:
        found = await embed_each(backend, ["a", "poison", "b"], purpose=Purpose.DOCUMENT)

        assert [isinstance(each, Vector) for each in found] == [True, False, True]
        assert found[1] == Fault("a vector", "HTTP 400")

    async def test_another_size_is_no_vector_of_the_model(
        self, http: httpx.AsyncClient, openai: FakeOpenAI
    ) -> None:
        item = {"index": 0, "embedding": [1.0] * 3}
        openai.override = lambda _: Reply(200, {"data": [item]})

        found = await make_backend(http).embed(["a"], Purpose.QUERY)

        assert found == [Fault("8 numbers", "3 numbers")]

    @pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "2"}, {"prompt_tokens": -2}])
    async def test_an_odd_token_count_is_not_passed_on(
        self, backend: OpenAIBackend, openai: FakeOpenAI, usage: object
    ) -> None:
        item = {"index": 0, "embedding": [1.0] * SPEC.dimensions}
        openai.override = lambda _: Reply(200, {"data": [item], "usage": usage})

        (found,) = vectors(await backend.embed(["a"], Purpose.QUERY))

        assert found.token_count == 0


class TestRepliesThatUsersMet:
    @pytest.mark.parametrize("item", reply_table.items("/v1/"), ids=str)
    async def test_a_reply_of_the_table_is_judged_as_it_says(
        self, http: httpx.AsyncClient, openai: FakeOpenAI, item: reply_table.Item
    ) -> None:
        openai.override = lambda _: Reply(200, item.reply)
        spec = replace(OPENAI, dimensions=reply_table.DIMENSIONS)

        await reply_table.judge(make_backend(http, spec), item)
