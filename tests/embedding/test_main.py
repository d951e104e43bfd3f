"""Which models a process serves, and how it comes and goes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from grpc import aio
from structlog.testing import capture_logs

from services.common.status import failure_of
from tests.embedding.fake_engines import FakeOllama, FakeOpenAI
from tests.embedding.memory_backend import SPEC
from tests.embedding.service import DOCUMENT, QUERY, embedding_service, set_environment

NOWHERE = {"OLLAMA_HOST": "127.0.0.1:9"}
TOY_OLLAMA = {"CHATMIND_EMBEDDING_OLLAMA_DIMENSIONS": str(SPEC.dimensions)}
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    fake = FakeOllama()
    async with fake.serving():
        yield fake


class TestDefault:
    async def test_it_is_ollama_s_where_that_answers_and_has_the_model(
        self, ollama: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variables = {"OLLAMA_HOST": ollama.url, **TOY_OLLAMA}
        with capture_logs() as logs:
            async with embedding_service(tmp_path, monkeypatch, variables) as caller:
                response = await caller.embed(["hello"])

        assert (response.model, response.dimensions) == ("bge-m3", SPEC.dimensions)
        (told,) = [each for each in logs if each["event"] == "default model"]
        assert (told["model"], told["backend"]) == ("bge-m3", "ollama")
        assert ollama.url in told["why"]

    async def test_it_is_the_bundled_one_where_no_ollama_answers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with capture_logs() as logs:
            async with embedding_service(tmp_path, monkeypatch, NOWHERE) as caller:
                response = await caller.embed(["hello"])
                models = await caller.models()

        assert (response.model, response.dimensions) == ("use-m3", 512)
        assert response.digest.startswith("sha256:")
        assert {name: each.ready for name, each in models.items()} == {
            "bge-m3": False,
            "use-m3": True,
        }
        (told,) = [each for each in logs if each["event"] == "default model"]
        assert (told["model"], told["backend"]) == ("use-m3", "bundled")

    async def test_it_is_the_bundled_one_where_ollama_lacks_the_model(
        self, ollama: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ollama.models = {"llama3:latest": "abc"}
        variables = {"OLLAMA_HOST": ollama.url, **TOY_OLLAMA}
        async with embedding_service(tmp_path, monkeypatch, variables) as caller:
            models = await caller.models()

        assert [name for name, each in models.items() if each.default] == ["use-m3"]

    async def test_it_is_the_configured_one_even_while_that_is_down(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variables = {"CHATMIND_EMBEDDING_BACKEND": "ollama", **NOWHERE}
        async with embedding_service(tmp_path, monkeypatch, variables) as caller:
            with pytest.raises(aio.AioRpcError) as raised:
                await caller.embed(["hello"])

        assert failure_of(raised.value).reason == "BACKEND_UNAVAILABLE"

    async def test_it_is_an_openai_compatible_endpoint_s_when_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = FakeOpenAI()
        (tmp_path / "key").write_text(f"{fake.key}\n")
        async with fake.serving():
            variables = {
                "CHATMIND_EMBEDDING_BACKEND": "openai",
                "CHATMIND_EMBEDDING_OPENAI_BASE_URL": f"{fake.url}/v1",
                "CHATMIND_EMBEDDING_OPENAI_MODEL": "embed-1",
                "CHATMIND_EMBEDDING_OPENAI_DIMENSIONS": str(SPEC.dimensions),
                "CHATMIND_EMBEDDING_OPENAI_API_KEY_FILE": str(tmp_path / "key"),
                "OPENAI_API_KEY": "of another endpoint",
            }
            async with embedding_service(tmp_path, monkeypatch, variables) as caller:
                response = await caller.embed(["a", "b"])
                models = await caller.models()

        assert (response.model, len(response.embeddings)) == ("embed-1", 2)
        assert list(models) == ["embed-1", "use-m3"]


class TestOtherModels:
    async def test_vectors_of_an_older_default_can_still_be_searched(
        self, ollama: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variables = {"OLLAMA_HOST": ollama.url, **TOY_OLLAMA}
        async with embedding_service(tmp_path, monkeypatch, variables) as caller:
            response = await caller.embed(["hello"], model="use-m3", purpose=QUERY)

        assert (response.model, response.dimensions) == ("use-m3", 512)


class TestBundled:
    async def test_a_query_is_answered_in_the_middle_of_a_bulk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        piece = "The gateway streams every completed message to its clients. " * 15
        pieces = [f"{at} {piece}" for at in range(64)]
        variables = {"CHATMIND_EMBEDDING_BACKEND": "bundled"}
        async with embedding_service(tmp_path, monkeypatch, variables) as caller:
            await caller.embed(["warm"])
            async with asyncio.TaskGroup() as group:
                bulk = group.create_task(caller.embed(pieces, purpose=DOCUMENT))
                began = time.perf_counter()
                await caller.embed(["where is it?"], purpose=QUERY)
                waited = time.perf_counter() - began
                assert not bulk.done()

        assert waited < 0.5 * (time.perf_counter() - began)
        assert len(bulk.result().embeddings) == len(pieces)


class TestProcess:
    # Not the bundled model, whose loading would only take time here.
    VARIABLES: ClassVar = {"CHATMIND_EMBEDDING_BACKEND": "ollama", **NOWHERE}

    @staticmethod
    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.embedding"),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])},
            stderr=asyncio.subprocess.PIPE,
        )

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    async def test_it_ends_cleanly_when_asked_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
    ) -> None:
        set_environment(tmp_path, monkeypatch, self.VARIABLES)
        process = await self.start()
        assert process.stderr is not None
        async with asyncio.timeout(30):
            seen = b""
            while b'"serving"' not in seen:
                seen = await process.stderr.readline()
                assert seen
            process.send_signal(signum)
            _, rest = await process.communicate()

        assert process.returncode == 0
        assert b"Traceback" not in rest

    async def test_a_missing_key_ends_it_with_a_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_environment(tmp_path, monkeypatch, self.VARIABLES)
        (tmp_path / "embedding/trusted/knowledge.pub").unlink()
        process = await self.start()
        async with asyncio.timeout(30):
            _, said = await process.communicate()

        assert process.returncode == 1
        assert b"knowledge.pub" in said
        assert b"Traceback" not in said
