"""A whole service, and several on one database, through what goes wrong while they ingest."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from grpc import StatusCode, aio

from cli.local.ports import free_ports
from services.common.session import open_connection
from services.common.settings import read_settings
from services.embedding.main import running_embedding
from services.embedding.settings import EmbeddingSettings
from services.knowledge.main import running_knowledge
from services.knowledge.settings import KnowledgeSettings
from tests.embedding.service import set_environment
from tests.knowledge.rpc import refused
from tests.knowledge.system import (
    ENOUGH,
    FAILED,
    INGESTING,
    PENDING,
    READY,
    Caller,
    System,
    eventually,
    knowledge_settings,
    open_system,
)

CASES = Path(__file__).parents[1] / "cases"
PILL = "poison pill"
TEA = "# Tea\n\nBoil the water.\n\n# Sea\n\nHoist the sails.\n"


class TestOneBadChunk:
    """Case 14: a document is searchable whole, or not at all."""

    CASE = CASES / "14-one-bad-chunk-atomic-ingest"

    async def test_five_steps(self, tmp_path: Path, own_database: str) -> None:
        content = (self.CASE / "input.md").read_text(encoding="utf-8")
        expected = json.loads((self.CASE / "expected.json").read_text(encoding="utf-8"))
        clean = content.replace(f" — {PILL}", "")
        async with open_system(tmp_path, own_database) as system:
            system.embedding.poison = PILL
            alice = system.team().alice
            base = await alice.base()

            failed = await alice.ingest(base.id, "a.md", content)
            assert_failed_on(failed, expected["failing_path"])
            assert await alice.search(base.id, "text of part") == []
            assert len(system.embedding.batches) <= expected["embedder_calls_at_most"]

            second = await alice.ingest(base.id, "a.md", clean)
            assert second.id == failed.id
            assert (READY, expected["sections"]) == (second.state, second.chunks_total)
            before = await alice.chunks(second.id)

            third = await alice.ingest(base.id, "a.md", content)
            assert_failed_on(third, expected["failing_path"])
            assert (third.version, third.searchable_version) == (3, 2)
            assert before == await alice.chunks(third.id)
            assert len(await alice.search(base.id, "text of part", top_k=50)) == 5

            receipt = await alice.call(
                "DeleteDocument", pb.DeleteDocumentRequest(document_id=third.id)
            )
            assert receipt.receipt.chunks == 5
            assert await alice.search(base.id, "text of part") == []
            assert await chunk_rows(own_database) == 0


class TestManyDocuments:
    async def test_a_hundred_become_ready(self, tmp_path: Path, own_database: str) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            puts = [alice.put(base.id, f"{i}.md", f"# {i}\n\ntext {i}\n") for i in range(100)]
            documents = await asyncio.gather(*puts)

            settled = await asyncio.gather(*(alice.settled(each.id) for each in documents))

            assert {READY} == {each.state for each in settled}
            assert await counts(alice, base.id) == (100, 100)
            assert await chunk_rows(own_database) == 100

    @pytest.mark.timeout(180)
    async def test_a_large_one_leaves_the_service_answering(
        self, tmp_path: Path, own_database: str
    ) -> None:
        section = "# Section {0}\n\n" + "Words that fill the page number {0}. " * 60 + "\n\n"
        content = "".join(section.format(i) for i in range(4_600)).encode()
        assert len(content) > 10_000_000
        settings = {"batch_texts": 256, "batch_tokens": 1_000_000}
        async with open_system(tmp_path, own_database, **settings) as system:
            system.embedding.max_batch_size, system.embedding.max_input_tokens = 256, 8192
            alice = system.team().alice
            base = await alice.base(chunking=knowledge_base_pb2.Chunking(max_tokens=2048))
            parts = [content[i : i + 2**20] for i in range(0, len(content), 2**20)]
            head = pb.UploadDocumentHeader(knowledge_base_id=base.id, display_name="large.md")

            document = await alice.upload(
                [
                    pb.UploadDocumentRequest(header=head),
                    *(pb.UploadDocumentRequest(data=part) for part in parts),
                ]
            )
            waits = []
            while (now := await alice.get(document.id)).state in {PENDING, INGESTING}:
                began = asyncio.get_running_loop().time()
                await alice.search(base.id, "words")
                waits.append(asyncio.get_running_loop().time() - began)
                await asyncio.sleep(0.1)

            assert (now.state, now.chunks_total) == (READY, 4_600)
            assert await chunk_rows(own_database) == 4_600
            assert sorted(waits)[int(len(waits) * 0.9)] < 1.0

    async def test_a_hard_one_costs_nobody_else_their_turn(
        self, tmp_path: Path, own_database: str
    ) -> None:
        settings = {"cut_seconds": 0.5, "cut_seconds_per_megabyte": 0.001, "documents_at_once": 1}
        async with open_system(tmp_path, own_database, **settings) as system:
            alice = system.team().alice
            base = await alice.base()
            hard = await alice.put(base.id, "hard.md", "word *a_ **b [c](d) `e` " * 400_000)
            easy = await alice.put(base.id, "easy.md", TEA)

            failed, ready = await asyncio.gather(alice.settled(hard.id), alice.settled(easy.id))

            assert (failed.state, failed.error.reason) == (FAILED, "INGESTION_FAILED")
            assert ready.state == READY


class TestReuploads:
    async def test_many_at_once_leave_one_whole_version(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            texts = ["\n\n".join(f"# {i}\n\nversion {v}" for i in range(v)) for v in range(1, 13)]

            documents = await asyncio.gather(*(alice.put(base.id, "a.md", text) for text in texts))
            document = await alice.settled(documents[0].id)

            assert len({each.id for each in documents}) == 1
            newest = max(documents, key=lambda each: each.version)
            assert (
                document.state,
                document.version,
                document.searchable_version,
            ) == (READY, 12, 12)
            assert newest.content_hash == document.content_hash
            chunks = await alice.chunks(document.id)
            assert len({chunk.text for chunk in chunks}) == 1
            assert chunks[0].text == f"version {len(chunks)}"
            assert (1, len(chunks)) == await counts(alice, base.id)
            assert len(chunks) == await chunk_rows(own_database)

    async def test_an_unchanged_text_costs_no_embedding(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            await alice.ingest(base.id, "a.md", TEA)
            before = await alice.search(base.id, "hoist")
            system.embedding.batches.clear()

            await alice.ingest(base.id, "a.md", TEA + "\n# New\n\npiece\n")

            assert system.embedding.embedded == ["New\npiece"]
            after = await alice.search(base.id, "hoist")
            assert before[0].score == after[0].score


class TestDeletionWhileIngesting:
    @pytest.mark.parametrize("what", ["document", "base"])
    async def test_leaves_nothing_behind(
        self, tmp_path: Path, own_database: str, what: str
    ) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            system.embedding.open.clear()
            document = await alice.put(base.id, "a.md", TEA)
            await asyncio.wait_for(system.embedding.entered.wait(), ENOUGH)

            if what == "document":
                await alice.call(
                    "DeleteDocument", pb.DeleteDocumentRequest(document_id=document.id)
                )
            else:
                request = pb.DeleteKnowledgeBaseRequest(knowledge_base_id=base.id)
                await alice.call("DeleteKnowledgeBase", request)
            system.embedding.open.set()

            other = await alice.base("other")
            assert (await alice.ingest(other.id, "b.md", TEA)).state == READY
            assert await chunk_rows(own_database) == 2
            assert await rows(own_database, "document_content") == 1


class TestDyingWorkers:
    async def test_a_worker_that_ends_in_order_hands_over_at_once(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with AsyncExitStack() as stack:
            system = await stack.enter_async_context(
                open_system(tmp_path, own_database, role="api")
            )
            alice = system.team().alice
            base = await alice.base()
            system.embedding.open.clear()
            async with worker(tmp_path, own_database, system):
                document = await alice.put(base.id, "a.md", TEA)
                await asyncio.wait_for(system.embedding.entered.wait(), ENOUGH)
            assert (await alice.get(document.id)).state == PENDING

            system.embedding.open.set()
            async with worker(tmp_path, own_database, system):
                assert (await alice.settled(document.id, within=5)).state == READY

    async def test_a_killed_workers_document_is_finished_by_another(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database, role="api") as system:
            alice = system.team().alice
            base = await alice.base()
            await alice_ingested(system, tmp_path, own_database, alice, base.id)
            system.embedding.open.clear()
            system.embedding.entered.clear()
            process = await start_process(tmp_path, own_database, system, lease=1.0)
            document = await alice.put(base.id, "a.md", TEA + "\n# New\n\npiece\n")
            await asyncio.wait_for(system.embedding.entered.wait(), ENOUGH)

            process.kill()
            await process.communicate()
            assert (await alice.get(document.id)).state == INGESTING
            assert len(await alice.search(base.id, "water")) == 2
            system.embedding.open.set()
            async with worker(tmp_path, own_database, system):
                document = await alice.settled(document.id)

            assert (
                document.state,
                document.searchable_version,
                document.chunks_total,
            ) == (READY, 2, 3)
            assert await chunk_rows(own_database) == 3


class TestOutages:
    async def test_the_embedding_service_down_then_up(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            await system.embedding_server.kill()
            stored = await alice.put(base.id, "a.md", TEA)

            async def is_put_off() -> bool:
                return bool((await alice.get(stored.id)).error.reason)

            await eventually(is_put_off)
            document = await alice.get(stored.id)
            assert (document.state, document.error.reason) == (PENDING, "EMBEDDING_UNAVAILABLE")
            with refused(StatusCode.UNAVAILABLE, "EMBEDDING_UNAVAILABLE"):
                await alice.search(base.id, "water")

            await system.embedding_server.start()

            document = await alice.settled(document.id)
            assert (document.state, document.error.reason) == (READY, "")

    async def test_the_database_loses_every_connection(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database) as system:
            alice = system.team().alice
            base = await alice.base()
            system.embedding.open.clear()
            document = await alice.put(base.id, "a.md", TEA)
            await asyncio.wait_for(system.embedding.entered.wait(), ENOUGH)

            async with open_connection(own_database, application_name="test") as session:
                await session.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'chatmind-knowledge'"
                )
            system.embedding.open.set()

            async def is_ready() -> bool:
                with suppress(aio.AioRpcError):
                    return bool((await alice.get(document.id)).state == READY)
                return False

            await eventually(is_ready)


class TestRealEmbedding:
    async def test_the_two_services_understand_each_other(
        self, tmp_path: Path, own_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variables = {"CHATMIND_EMBEDDING_BACKEND": "bundled"}
        set_environment(tmp_path / "identity", monkeypatch, variables)
        settings = read_settings(EmbeddingSettings)
        async with running_embedding(settings) as embedding:
            address = f"127.0.0.1:{embedding.port}"
            async with open_system(tmp_path, own_database, embedding_address=address) as system:
                alice = system.team().alice
                base = await alice.base()
                document = await alice.ingest(base.id, "a.md", TEA + "\n# 茶\n\n把水烧开。\n")

                hits = await alice.search(base.id, "How do I heat water?", top_k=3)

        assert (base.embedding_model, base.embedding_dimensions) == ("use-m3", 512)
        assert (document.state, document.chunks_total) == (READY, 3)
        assert {"Boil the water.", "把水烧开。"} == {hit.chunk.text for hit in hits[:2]}


class TestDraining:
    async def test_ends_watches_so_that_another_replica_takes_over(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database, role="api") as system:
            alice = system.team().alice
            base = await alice.base()
            document = await alice.put(base.id, "a.md", TEA)
            async with replica(tmp_path, own_database, system) as other:
                watch = Caller(other, alice.identity, alice.metadata).watch(document.id)
                assert (await anext(watch)).state == PENDING

            with refused(StatusCode.UNAVAILABLE, "UNAVAILABLE"):
                await anext(watch)


class TestProcess:
    async def test_serves_until_it_is_asked_to_stop(
        self, tmp_path: Path, own_database: str
    ) -> None:
        async with open_system(tmp_path, own_database, role="api") as system:
            process = await start_process(tmp_path, own_database, system, lease=30.0)
            alice = system.team().alice
            base = await alice.base()
            assert (await alice.ingest(base.id, "a.md", TEA)).state == READY

            process.send_signal(signal.SIGTERM)

            async with asyncio.timeout(ENOUGH):
                await process.communicate()
            assert process.returncode == 0

    async def test_migrates_and_ends(self, tmp_path: Path, empty_database: str) -> None:
        async with open_system(tmp_path, empty_database) as system:
            process = await start_process(
                tmp_path, empty_database, system, lease=30.0, arguments=("migrate",)
            )
            async with asyncio.timeout(ENOUGH):
                await process.communicate()

        assert process.returncode == 0

    async def test_says_in_one_line_what_is_missing(self, tmp_path: Path) -> None:
        environment = {
            **os.environ,
            "CHATMIND_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
            "CHATMIND_KNOWLEDGE_IDENTITY_DIR": str(tmp_path),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.knowledge", env=environment, stderr=PIPE
        )
        async with asyncio.timeout(ENOUGH):
            _, told = await process.communicate()

        assert process.returncode == 1
        assert told.strip().splitlines()[-1] == b"knowledge: The database cannot be reached."


def assert_failed_on(document: document_pb2.Document, path: list[str]) -> None:
    """Check that a document failed, and names the section at fault."""
    assert document.state == FAILED
    assert document.error.reason == "CHUNK_NOT_EMBEDDED"
    assert [path] == [list(chunk.heading_path) for chunk in document.error.chunks]
    assert " > ".join(path) in document.error.message


async def alice_ingested(
    system: System, folder: Path, database: str, alice: Caller, base_id: str
) -> None:
    """A document that a worker has made searchable before."""
    async with worker(folder, database, system):
        assert (await alice.ingest(base_id, "a.md", TEA)).state == READY


@asynccontextmanager
async def worker(folder: Path, database: str, system: System) -> AsyncIterator[None]:
    """A worker on the same database, ended in order."""
    settings = settings_of(folder, database, system, role="worker")
    async with running_knowledge(settings):
        yield


@asynccontextmanager
async def replica(folder: Path, database: str, system: System) -> AsyncIterator[Any]:
    """A stub of another replica that answers calls."""
    settings = settings_of(folder, database, system, role="api")
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(AsyncExitStack())
        server = await running.enter_async_context(running_knowledge(settings))
        channel = await stack.enter_async_context(aio.insecure_channel(f"127.0.0.1:{server.port}"))
        yield type(system.team().alice.stub)(channel)
        await running.aclose()


def settings_of(folder: Path, database: str, system: System, **settings: Any) -> KnowledgeSettings:
    """Settings of another process of the same installation."""
    port = system.embedding_server.port
    return knowledge_settings(folder, database, port=port, lease_seconds=1.0, **settings)


async def start_process(
    folder: Path,
    database: str,
    system: System,
    *,
    lease: float,
    arguments: tuple[str, ...] = (),
) -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CHATMIND_DATABASE_URL": database,
        "CHATMIND_KNOWLEDGE_ROLE": "worker",
        "CHATMIND_KNOWLEDGE_LISTEN": f"127.0.0.1:{next(free_ports())}",
        "CHATMIND_KNOWLEDGE_IDENTITY_DIR": str(folder / "identity" / "knowledge"),
        "CHATMIND_KNOWLEDGE_EMBEDDING_ADDRESS": f"127.0.0.1:{system.embedding_server.port}",
        "CHATMIND_KNOWLEDGE_LEASE_SECONDS": str(lease),
        "CHATMIND_KNOWLEDGE_DRAIN_SECONDS": "0",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.knowledge", *arguments, env=environment, stderr=PIPE
    )


async def counts(caller: Caller, base_id: str) -> tuple[int, int]:
    """How many documents and chunks a base says it holds."""
    request = pb.GetKnowledgeBaseRequest(knowledge_base_id=base_id)
    base = (await caller.call("GetKnowledgeBase", request)).knowledge_base
    return base.document_count, base.chunk_count


async def chunk_rows(database: str) -> int:
    """How many chunks there really are."""
    return await rows(database, "chunk_bigrams")


async def rows(database: str, table: str) -> int:
    """How many rows a table really has."""
    async with open_connection(database, application_name="test") as session:
        count: int = await session.fetchval(f"SELECT count(*) FROM knowledge.{table}")
        return count
