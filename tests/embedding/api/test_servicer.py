"""The service as its callers meet it: real gRPC, a real HTTP engine behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import grpc
import numpy as np
import pytest
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2
from grpc import aio
from grpc_health.v1 import health_pb2

from services.common.status import RpcFailure, failure_of
from tests.calls import health_of
from tests.embedding.fake_engines import FakeOllama
from tests.embedding.fake_http import Reply
from tests.embedding.memory_backend import SPEC, toy_numbers
from tests.embedding.service import (
    DOCUMENT,
    QUERY,
    Caller,
    embedding_service,
    retry_seconds,
)

VARIABLES = {
    "CHATMIND_EMBEDDING_BACKEND": "ollama",
    "CHATMIND_EMBEDDING_OLLAMA_DIMENSIONS": str(SPEC.dimensions),
}


@pytest.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    fake = FakeOllama()
    async with fake.serving():
        yield fake


@pytest.fixture
def variables() -> dict[str, str]:
    return {}


@pytest.fixture
async def caller(
    ollama: FakeOllama,
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Caller]:
    given = {**VARIABLES, "OLLAMA_HOST": ollama.url, **variables}
    async with embedding_service(tmp_path, monkeypatch, given) as caller:
        yield caller


async def failure(call: Awaitable[object]) -> RpcFailure:
    """What the call fails with."""
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    return failure_of(raised.value)


def wanted(text: str) -> list[float]:
    numbers = np.array(toy_numbers(text))
    values: list[float] = (numbers / np.linalg.norm(numbers)).astype(np.float32).tolist()
    return values


class TestEmbed:
    async def test_vectors_come_in_order_with_what_computed_them(self, caller: Caller) -> None:
        texts = [f"text {at}" for at in range(100)]

        response = await caller.embed(texts, model="bge-m3")

        assert [list(each.values) for each in response.embeddings] == [
            pytest.approx(wanted(text), abs=1e-6) for text in texts
        ]
        assert (response.model, response.dimensions) == ("bge-m3", SPEC.dimensions)
        assert response.digest == "sha256:7907646426070047"

    async def test_truncation_and_tokens_are_told(self, caller: Caller, ollama: FakeOllama) -> None:
        ollama.silent = True

        response = await caller.embed(["word " * 5000, "two words"])
        alone = await caller.embed(["two words"], purpose=QUERY)

        assert [each.truncated for each in response.embeddings] == [True, False]
        assert response.embeddings[0].token_count == 2048
        assert alone.embeddings[0].token_count == 2

    async def test_five_megabytes_go_through(self, caller: Caller, ollama: FakeOllama) -> None:
        ollama.silent = True
        texts = [f"{at} " * (2**20 // 2) for at in range(5)]

        response = await caller.embed(texts)

        assert [each.truncated for each in response.embeddings] == [True] * 5

    async def test_a_nul_reaches_no_engine(self, caller: Caller, ollama: FakeOllama) -> None:
        await caller.embed(["a\x00b"])

        (request,) = ollama.asked("/api/embed")
        assert isinstance(request.body, dict)
        assert request.body["input"] == ["a\ufffdb"]

    async def test_forty_callers_at_once_share_few_calls_and_get_what_each_would_alone(
        self, caller: Caller, ollama: FakeOllama
    ) -> None:
        texts = [f"question {at}" for at in range(40)]
        ollama.seconds = 0.05
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(caller.embed([t], purpose=QUERY)) for t in texts]
        shared = len(ollama.asked("/api/embed"))
        ollama.seconds = 0

        for text, call in zip(texts, calls, strict=True):
            alone = await caller.embed([text], purpose=QUERY)
            together = call.result().embeddings[0].values
            assert np.allclose(together, alone.embeddings[0].values, atol=1e-5)
        assert shared <= 8

    async def test_a_caller_who_hangs_up_leaves_no_work_behind(
        self, caller: Caller, ollama: FakeOllama
    ) -> None:
        ollama.hold.clear()
        request = embedding_service_pb2.EmbedRequest(
            texts=[f"piece {at}" for at in range(256)], purpose=DOCUMENT
        )
        call = caller.stub.Embed(request, metadata=caller.metadata())
        await ollama.until_asked("/api/embed")
        call.cancel()
        ollama.hold.set()
        await caller.embed(["next"])

        assert len(ollama.asked("/api/embed")) <= 3


class TestRefused:
    async def test_an_unknown_model(self, caller: Caller) -> None:
        told = await failure(caller.embed(["a"], model="gpt-9"))

        assert (told.code, told.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_MODEL")
        assert told.metadata == {"model": "gpt-9", "known": "bge-m3,use-m3"}

    async def test_blank_texts_by_their_place(self, caller: Caller, ollama: FakeOllama) -> None:
        told = await failure(caller.embed(["a", " \n ", "b", "\u3000"]))

        assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert [each.field for each in told.violations] == ["texts[1]", "texts[3]"]
        assert ollama.asked("/api/embed") == []

    @pytest.mark.parametrize(
        ("texts", "field"),
        [
            ([], "texts"),
            (["a"] * 257, "texts"),
            (["a", ""], "texts[1]"),
            (["x" * 2**21], "texts[0]"),
        ],
    )
    async def test_what_the_contract_forbids(
        self, caller: Caller, texts: list[str], field: str
    ) -> None:
        told = await failure(caller.embed(texts))

        assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert [each.field for each in told.violations] == [field]

    async def test_no_purpose(self, caller: Caller) -> None:
        told = await failure(caller.embed(["a"], purpose=embedding_pb2.PURPOSE_UNSPECIFIED))

        assert [each.field for each in told.violations] == ["purpose"]

    @pytest.mark.parametrize("variables", [{"CHATMIND_EMBEDDING_MAX_BATCH_SIZE": "10"}])
    async def test_more_texts_than_the_model_takes(self, caller: Caller) -> None:
        told = await failure(caller.embed(["a"] * 11))

        assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")
        assert told.metadata == {"count": "11", "max_batch_size": "10"}

    @pytest.mark.parametrize("variables", [{"CHATMIND_EMBEDDING_MAX_PENDING_TEXTS": "10"}])
    async def test_more_than_may_wait(self, caller: Caller, ollama: FakeOllama) -> None:
        ollama.hold.clear()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(caller.embed(["a"] * 256))
            await ollama.until_asked("/api/embed")
            with pytest.raises(aio.AioRpcError) as raised:
                await caller.embed(["b"])
            ollama.hold.set()

        assert failure_of(raised.value).code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_seconds(raised.value) == 1
        assert len(first.result().embeddings) == 256


class TestEngineFaults:
    async def test_the_texts_an_engine_fails_on_are_named(self, caller: Caller) -> None:
        told = await failure(caller.embed(["a", "poison 1", "b", "c", "poison 2"]))

        assert (told.code, told.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "INVALID_EMBEDDING",
        )
        assert told.metadata == {
            "model": "bge-m3",
            "indexes": "1,4",
            "expected": "a vector",
            "received": "HTTP 500",
        }

    async def test_another_size_names_both(self, caller: Caller, ollama: FakeOllama) -> None:
        ollama.override = lambda request: (
            Reply(200, {"embeddings": [[1.0] * 7]}) if request.path == "/api/embed" else None
        )

        told = await failure(caller.embed(["a"], purpose=QUERY))

        assert (told.metadata["expected"], told.metadata["received"]) == ("8 numbers", "7 numbers")

    async def test_an_engine_that_is_down_says_when_to_ask_again(
        self, caller: Caller, ollama: FakeOllama
    ) -> None:
        ollama.override = lambda _: Reply(503, {"error": "busy"}, {"retry-after": "7"})

        with pytest.raises(aio.AioRpcError) as raised:
            await caller.embed(["a"])

        told = failure_of(raised.value)
        assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "BACKEND_UNAVAILABLE")
        assert told.metadata == {"backend": "ollama", "model": "bge-m3"}
        assert retry_seconds(raised.value) == 7

    async def test_a_missing_model_is_named_with_its_remedy(
        self, caller: Caller, ollama: FakeOllama
    ) -> None:
        ollama.models = {}

        told = await failure(caller.embed(["a"]))

        assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "BACKEND_UNAVAILABLE")
        assert "ollama pull bge-m3" in told.message

    async def test_one_caller_s_bad_text_is_not_another_s(
        self, caller: Caller, ollama: FakeOllama
    ) -> None:
        ollama.hold.clear()
        async with asyncio.TaskGroup() as group:
            held = group.create_task(caller.embed(["held"]))
            await ollama.until_asked("/api/embed")
            bad = group.create_task(failure(caller.embed(["poison"])))
            good = [group.create_task(caller.embed([f"good {at}"])) for at in range(5)]
            ollama.hold.set()

        assert bad.result().metadata["indexes"] == "0"
        assert [len(call.result().embeddings) for call in [held, *good]] == [1] * 6

    async def test_nothing_of_the_engine_s_words_or_the_texts_leaves(
        self, caller: Caller, ollama: FakeOllama, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ollama.override = lambda _: Reply(500, {"error": "at /srv/models/private.gguf"})

        told = await failure(caller.embed(["my diary"]))

        assert "private" not in told.message + json.dumps(dict(told.metadata))
        logged = "".join(capfd.readouterr())
        assert "private.gguf" in logged
        assert "diary" not in logged


class TestListModels:
    async def test_all_models_are_told_by_name(self, caller: Caller) -> None:
        models = await caller.models()

        assert list(models) == ["bge-m3", "use-m3"]
        assert models["bge-m3"].dimensions == SPEC.dimensions
        assert models["use-m3"].dimensions == 512
        assert [each.default for each in models.values()] == [True, False]
        assert [each.ready for each in models.values()] == [True, True]

    @pytest.mark.parametrize("variables", [{"CHATMIND_EMBEDDING_CHECK_INTERVAL_SECONDS": "0.05"}])
    async def test_readiness_follows_the_engine(self, caller: Caller, ollama: FakeOllama) -> None:
        models, ollama.models = ollama.models, {}
        async with asyncio.timeout(10):
            while (await caller.models())["bge-m3"].ready:
                pass
            ollama.models = models
            while not (await caller.models())["bge-m3"].ready:
                pass


class TestAuthentication:
    async def test_a_call_without_token_is_refused(self, caller: Caller) -> None:
        request = embedding_service_pb2.EmbedRequest(texts=["a"], purpose=QUERY)

        told = await failure(caller.stub.Embed(request, timeout=10))
        listed = await failure(
            caller.stub.ListModels(embedding_service_pb2.ListModelsRequest(), timeout=10)
        )

        assert told.code == listed.code == grpc.StatusCode.UNAUTHENTICATED
        assert told.reason == "UNAUTHENTICATED"

    @pytest.mark.parametrize(
        ("issuer", "audience"),
        [("gateway", "embedding"), ("agent", "embedding"), ("knowledge", "knowledge")],
    )
    async def test_only_the_knowledge_service_is_trusted_and_only_for_this_service(
        self, caller: Caller, issuer: str, audience: str
    ) -> None:
        request = embedding_service_pb2.EmbedRequest(texts=["a"], purpose=QUERY)
        metadata = caller.metadata(issuer=issuer, audience=audience)

        told = await failure(caller.stub.Embed(request, metadata=metadata, timeout=10))

        assert told.code == grpc.StatusCode.UNAUTHENTICATED

    async def test_health_is_open(self, caller: Caller) -> None:
        stub = health_of(caller.channel)
        service = "chatmind.embedding.v1.EmbeddingService"

        response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)

        assert response.status == health_pb2.HealthCheckResponse.SERVING
