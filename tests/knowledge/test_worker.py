"""The worker over stores in memory: every way in which a document comes to an end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from services.common.errors import UnavailableError
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.hints import INGEST_QUEUE
from services.knowledge.domain.ingest.batching import BatchLimits
from services.knowledge.domain.ingest.cutting import (
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
)
from services.knowledge.domain.ingest.embed import PieceEmbedder
from services.knowledge.domain.ingest.job import IngestedDocument, IngestJob
from services.knowledge.domain.ingest.run import Ingestion, IngestTools
from services.knowledge.domain.models import Document, DocumentState, KnowledgeBase
from services.knowledge.store.memory.bases import MemoryBases
from services.knowledge.store.memory.chunks import MemoryChunks
from services.knowledge.store.memory.documents import MemoryDocuments
from services.knowledge.store.memory.queue import MemoryIngestQueue
from services.knowledge.store.memory.state import MemoryState
from services.knowledge.worker import Worker, WorkerLimits
from tests.contracts.knowledge_stores import ALICE, Stores
from tests.knowledge.doubles import SPACE, InlineCutter, LocalHints, MemoryEmbedder

WITHIN = 5.0
TEXT = b"# One\n\nfirst\n\n# Two\n\nsecond\n"


@dataclass
class MovableClock:
    """The present, which a test can move on."""

    offset: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC) + self.offset

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.offset += timedelta(seconds=seconds)


class FlakyQueue(MemoryIngestQueue):
    """A queue whose database is away for some of the writes of results."""

    failures = 0

    async def finish(self, job: IngestJob, result: IngestedDocument) -> None:
        """See the port."""
        if self.failures:
            self.failures -= 1
            raise UnavailableError("The database cannot be reached.")
        await super().finish(job, result)


@dataclass
class Bench:
    """A worker's surroundings, all in memory."""

    clock: MovableClock = field(default_factory=MovableClock)
    embedder: MemoryEmbedder = field(default_factory=MemoryEmbedder)
    cutter: InlineCutter = field(default_factory=InlineCutter)
    hints: LocalHints = field(default_factory=lambda: LocalHints(poll=0.02))
    limits: WorkerLimits = field(
        default_factory=lambda: WorkerLimits(slots=2, lease=30, max_attempts=3, max_retries=2)
    )

    def __post_init__(self) -> None:
        state = MemoryState(self.clock)
        self.queue = FlakyQueue(state)
        self.stores = Stores(
            MemoryBases(state), MemoryDocuments(state), MemoryChunks(state), self.queue
        )

    def worker(self) -> Worker:
        """A worker."""
        tools = IngestTools(
            queue=self.queue,
            cutter=self.cutter,
            embedder=self.embedder,
            pieces=PieceEmbedder(self.embedder, BatchLimits(4, 1000)),
            new_id=new_id,
            max_chunks=50,
        )
        return Worker(
            self.queue,
            Ingestion(tools),
            listener=self.hints,
            notifier=self.hints,
            limits=self.limits,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[asyncio.Task[None]]:
        """A worker at work, until the end of the block or until its task is cancelled."""
        task = asyncio.create_task(self.worker().run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def base(self) -> KnowledgeBase:
        """A base."""
        return await self.stores.base(space=SPACE)

    async def put(
        self, base: KnowledgeBase, content: bytes = TEXT, *, name: str = "a.md"
    ) -> Document:
        """A document, stored and announced."""
        document = await self.stores.document(base, name, content)
        self.hints.notify(INGEST_QUEUE)
        return document

    async def document(self, document: Document) -> Document:
        """The document as it is now."""
        found = await self.stores.documents.get_document(document.id, viewer=ALICE)
        assert found is not None
        return found

    async def until(self, document: Document, holds: Callable[[Document], bool]) -> Document:
        """The document once something holds of it."""
        async with asyncio.timeout(WITHIN):
            while True:
                found = await self.document(document)
                if holds(found):
                    return found
                await asyncio.sleep(0.005)

    def cut_times(self, times: int) -> Callable[[Document], bool]:
        """Whether so many documents were handed to the cutter, whatever one of them says."""
        return lambda _: len(self.cutter.requests) == times

    async def settled(self, document: Document) -> Document:
        """The document once nothing more happens to it."""
        return await self.until(document, lambda found: found.state.settled)

    async def texts(self, document: Document) -> list[str]:
        """Its searchable texts."""
        chunks = await self.stores.chunks.list_chunks(
            document.id, space=SPACE, viewer=ALICE, page=Page()
        )
        return [chunk.text for chunk in chunks]


class TestDocuments:
    async def test_one_becomes_searchable(self) -> None:
        bench = Bench()
        async with bench.working():
            document = await bench.put(await bench.base())

            found = await bench.settled(document)

        assert found.state is DocumentState.READY
        assert (found.title, found.chunks_done, found.chunks_total) == ("One", 2, 2)
        assert await bench.texts(document) == ["first", "second"]

    async def test_one_without_text_is_ready_with_no_chunks(self) -> None:
        bench = Bench()
        async with bench.working():
            found = await bench.settled(await bench.put(await bench.base(), b" \n\n"))

        assert (found.state, found.chunks_total) == (DocumentState.READY, 0)
        assert bench.embedder.calls == []

    async def test_many_are_worked_on_at_once_and_each_once(self) -> None:
        bench = Bench()
        base = await bench.base()
        async with bench.working():
            documents = [await bench.put(base, name=f"{i}.md") for i in range(20)]
            for document in documents:
                assert (await bench.settled(document)).state is DocumentState.READY

        assert len(bench.cutter.requests) == 20

    async def test_progress_shows_while_it_is_embedded(self) -> None:
        bench = Bench()
        bench.embedder.max_batch_size = 1
        content = "\n\n".join(f"# {i}\n\ntext {i}" for i in range(6)).encode()
        bench.embedder.gate.clear()
        async with bench.working():
            document = await bench.put(await bench.base(), content)

            found = await bench.until(document, lambda each: each.chunks_total == 6)

            assert (found.state, found.chunks_done) == (DocumentState.INGESTING, 0)


class TestReuse:
    async def test_an_unchanged_text_is_not_embedded_again(self) -> None:
        bench = Bench()
        base = await bench.base()
        async with bench.working():
            await bench.settled(await bench.put(base))
            bench.embedder.calls.clear()

            document = await bench.put(base, TEXT.replace(b"second", b"changed"))
            await bench.settled(document)

        assert await bench.texts(document) == ["first", "changed"]
        assert bench.embedder.calls == [["Two\nchanged"]]

    async def test_other_weights_embed_everything_again(self) -> None:
        bench = Bench()
        base = await bench.base()
        async with bench.working():
            await bench.settled(await bench.put(base))
            bench.embedder.calls.clear()
            bench.embedder.digest = "weights-2"

            await bench.settled(await bench.put(base, TEXT + b"more\n"))

        assert sum(map(len, bench.embedder.calls)) == 2

    async def test_a_text_that_occurs_twice_is_embedded_once(self) -> None:
        bench = Bench()
        async with bench.working():
            document = await bench.put(await bench.base(), b"# A\n\nsame\n\n# A\n\nsame\n")
            await bench.settled(document)

        assert await bench.texts(document) == ["same", "same"]
        assert bench.embedder.calls == [["A\nsame"]]


class TestFailures:
    async def test_a_text_that_cannot_be_embedded_fails_the_document_and_is_named(self) -> None:
        bench = Bench()
        bench.embedder.poison = "second"
        async with bench.working():
            document = await bench.put(await bench.base())

            found = await bench.settled(document)

        assert found.state is DocumentState.FAILED
        assert found.error is not None
        assert found.error.reason == "CHUNK_NOT_EMBEDDED"
        assert [each.heading_path for each in found.error.chunks] == [("Two",)]
        assert await bench.texts(document) == []

    async def test_too_many_pieces_fail_it_before_any_is_embedded(self) -> None:
        bench = Bench()
        content = "\n\n".join(f"# {i}\n\ntext" for i in range(51)).encode()
        async with bench.working():
            found = await bench.settled(await bench.put(await bench.base(), content))

        assert found.error is not None
        assert found.error.reason == "TOO_MANY_CHUNKS"
        assert bench.embedder.calls == []

    async def test_a_model_of_other_dimensions_fails_it(self) -> None:
        bench = Bench()
        base = await bench.base()
        bench.embedder.spaces = (replace(SPACE, dimensions=9),)
        async with bench.working():
            found = await bench.settled(await bench.put(base))

        assert found.error is not None
        assert found.error.reason == "EMBEDDING_MODEL_MISMATCH"

    async def test_a_model_that_is_gone_fails_it(self) -> None:
        bench = Bench()
        base = await bench.base()
        bench.embedder.spaces = (replace(SPACE, model="other"),)
        async with bench.working():
            found = await bench.settled(await bench.put(base))

        assert found.error is not None
        assert found.error.reason == "UNKNOWN_EMBEDDING_MODEL"

    @pytest.mark.parametrize("error", [CutterTimeoutError(), UncuttableError("no")])
    async def test_a_document_that_cannot_be_cut_fails_at_once(self, error: Exception) -> None:
        bench = Bench()
        bench.cutter.error = error
        async with bench.working():
            found = await bench.settled(await bench.put(await bench.base()))

        assert found.error is not None
        assert found.error.reason == "INGESTION_FAILED"
        assert len(bench.cutter.requests) == 1

    @pytest.mark.parametrize("error", [CutterDiedError(), RuntimeError("a fault of ours")])
    async def test_a_document_that_kills_is_given_up_after_some_attempts(
        self, error: Exception
    ) -> None:
        bench = Bench()
        bench.cutter.error = error
        async with bench.working():
            document = await bench.put(await bench.base())
            for attempt in range(1, 4):
                await bench.until(document, bench.cut_times(attempt))
                await bench.until(document, lambda each: each.state is DocumentState.PENDING)
                bench.clock.advance(2)

            found = await bench.settled(document)

        assert found.error is not None
        assert found.error.reason == "INGESTION_FAILED"
        assert "3 attempts" in found.error.message
        assert len(bench.cutter.requests) == 3


class TestOutages:
    async def test_it_waits_for_the_embedding_service_and_says_so(self) -> None:
        bench = Bench()
        bench.embedder.unavailable = True
        base = await bench.base()
        async with bench.working():
            document = await bench.put(base)
            found = await bench.until(document, lambda each: each.error is not None)
            assert (found.state, found.error and found.error.reason) == (
                DocumentState.PENDING,
                "EMBEDDING_UNAVAILABLE",
            )

            bench.embedder.unavailable = False
            bench.clock.advance(2)

            found = await bench.settled(document)
        assert (found.state, found.error) == (DocumentState.READY, None)

    async def test_it_is_given_up_after_some_retries(self) -> None:
        bench = Bench()
        bench.embedder.unavailable = True
        async with bench.working():
            document = await bench.put(await bench.base())
            async with asyncio.timeout(WITHIN):
                while not (await bench.document(document)).state.settled:
                    bench.clock.advance(1)
                    await asyncio.sleep(0.01)

        found = await bench.document(document)
        assert found.state is DocumentState.FAILED
        assert found.error is not None
        assert found.error.reason == "INGESTION_FAILED"
        assert "3 tries" in found.error.message

    async def test_a_result_is_written_once_the_database_is_back(self) -> None:
        bench = Bench()
        bench.queue.failures = 1
        async with bench.working():
            found = await bench.settled(await bench.put(await bench.base()))

        assert found.state is DocumentState.READY
        assert len(bench.cutter.requests) == 1


class TestClaims:
    async def test_a_worker_that_ends_hands_its_document_back(self) -> None:
        bench = Bench()
        bench.embedder.gate.clear()
        async with bench.working() as task:
            document = await bench.put(await bench.base())
            await asyncio.wait_for(bench.embedder.entered.wait(), WITHIN)
            task.cancel()
        assert (await bench.document(document)).state is DocumentState.PENDING

        bench.embedder.gate.set()
        async with bench.working():
            found = await bench.settled(document)
        assert found.state is DocumentState.READY

    async def test_what_a_dead_worker_left_is_finished_by_another(self) -> None:
        bench = Bench()
        document = await bench.put(await bench.base())
        assert await bench.queue.claim(lease=0.05) is not None  # by one that was killed then

        async with bench.working():
            found = await bench.settled(document)

        assert found.state is DocumentState.READY

    async def test_a_claim_is_renewed_while_the_work_lasts(self) -> None:
        bench = Bench(limits=WorkerLimits(slots=2, lease=0.2, max_attempts=3, max_retries=2))
        bench.embedder.gate.clear()
        async with bench.working():
            document = await bench.put(await bench.base())
            await asyncio.wait_for(bench.embedder.entered.wait(), WITHIN)
            await asyncio.sleep(0.6)  # three leases
            bench.embedder.gate.set()

            await bench.settled(document)

        assert len(bench.cutter.requests) == 1

    async def test_a_newer_upload_ends_the_work_on_the_older(self) -> None:
        bench = Bench(limits=WorkerLimits(slots=1, lease=0.3, max_attempts=3, max_retries=2))
        base = await bench.base()
        bench.embedder.gate.clear()
        async with bench.working():
            document = await bench.put(base)
            await asyncio.wait_for(bench.embedder.entered.wait(), WITHIN)

            await bench.put(base, b"newer")
            await bench.until(document, lambda each: each.state is DocumentState.INGESTING)
            bench.embedder.gate.set()
            found = await bench.settled(document)

        assert (found.version, found.searchable_version) == (2, 2)
        assert await bench.texts(document) == ["newer"]

    async def test_a_deletion_ends_the_work(self) -> None:
        bench = Bench(limits=WorkerLimits(slots=1, lease=0.3, max_attempts=3, max_retries=2))
        base = await bench.base()
        bench.embedder.gate.clear()
        async with bench.working():
            document = await bench.put(base)
            await asyncio.wait_for(bench.embedder.entered.wait(), WITHIN)
            await bench.stores.documents.delete_document(document.id, viewer=ALICE)
            bench.embedder.gate.set()

            other = await bench.put(base, b"other", name="b.md")
            assert (await bench.settled(other)).state is DocumentState.READY

        assert await bench.stores.documents.get_document(document.id, viewer=ALICE) is None


class TestTruncation:
    async def test_a_piece_the_model_does_not_see_to_its_end_is_cut_finer(self) -> None:
        bench = Bench()
        bench.embedder.max_chars = 60
        words = " ".join(f"word{i}" for i in range(40))
        content = f"# A\n\nshort\n\n# B\n\n{words}\n".encode()
        async with bench.working():
            document = await bench.put(await bench.base(), content)
            await bench.settled(document)

        chunks = await bench.stores.chunks.list_chunks(
            document.id, space=SPACE, viewer=ALICE, page=Page()
        )
        assert not any(chunk.truncated for chunk in chunks)
        assert " ".join(chunk.text for chunk in chunks[1:]).split() == words.split()
        embedded = [text for call in bench.embedder.calls for text in call]
        assert embedded.count("A\nshort") == 1

    async def test_what_cannot_be_cut_finer_says_that_it_is_truncated(self) -> None:
        bench = Bench()
        bench.embedder.max_chars = 3
        async with bench.working():
            document = await bench.put(await bench.base(), b"some words here\n")
            found = await bench.settled(document)

        chunks = await bench.stores.chunks.list_chunks(
            document.id, space=SPACE, viewer=ALICE, page=Page()
        )
        assert found.state is DocumentState.READY
        assert [chunk.truncated for chunk in chunks] == [True]
