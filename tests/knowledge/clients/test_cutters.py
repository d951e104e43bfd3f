"""Cutters as real processes: in time, over it, dying, and one after another."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from services.common.errors import ResourceExhaustedError
from services.knowledge.clients.cutters import CutterLimits, Cutters, open_cutters
from services.knowledge.domain.ingest.cutting import (
    CutRequest,
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
    cut,
)
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField

LIMITS = CutterLimits(
    seconds=20.0, seconds_per_megabyte=1.0, memory_bytes=2 * 1024**3, patience=20.0
)
IN_NO_TIME = replace(LIMITS, seconds=0.0, seconds_per_megabyte=0.001)


def a_request(content: bytes = b"# A\n\ntext\n", *, media_type: str = "") -> CutRequest:
    """A document to cut."""
    return CutRequest(content, "a.md", media_type, ChunkPolicy(), EmbedField.TITLE_AND_CONTENT)


@pytest.fixture
async def cutters() -> AsyncIterator[Cutters]:
    """One cutter with time enough."""
    async with open_cutters(LIMITS, count=1) as opened:
        yield opened


def processes(cutters: Cutters) -> list[int]:
    """The ids of the processes that run."""
    return [each._process.pid for each in cutters._all if each._process]


class TestCut:
    async def test_gives_what_cutting_here_would(self, cutters: Cutters) -> None:
        sections = "\n\n".join(f"# {i}\n\ntext {i}" for i in range(450))
        request = a_request(f"---\ntitle: T\n---\n\n{sections}".encode())

        assert cut(request) == await cutters.cut(request)

    async def test_keeps_its_process(self, cutters: Cutters) -> None:
        await cutters.cut(a_request())
        first = processes(cutters)

        await cutters.cut(a_request())

        assert first == processes(cutters)

    async def test_a_document_that_cannot_be_cut_is_told_and_the_process_lives(
        self, cutters: Cutters
    ) -> None:
        await cutters.cut(a_request())
        first = processes(cutters)

        with pytest.raises(UncuttableError, match="InvalidEncodingError"):
            await cutters.cut(a_request(b"\xff"))

        assert first == processes(cutters)

    async def test_one_that_takes_too_long_is_given_up_and_the_process_replaced(self) -> None:
        async with open_cutters(IN_NO_TIME, count=1) as cutters:
            with pytest.raises(CutterTimeoutError):
                await cutters.cut(a_request(b"word *a_ " * 200_000))

            assert processes(cutters) == []

    async def test_a_process_that_is_killed_is_replaced(self, cutters: Cutters) -> None:
        await cutters.cut(a_request())
        (pid,) = processes(cutters)
        os.kill(pid, signal.SIGKILL)

        with pytest.raises(CutterDiedError):
            await cutters.cut(a_request())
        assert await cutters.cut(a_request()) == cut(a_request())

    async def test_one_that_takes_all_memory_hurts_nobody_else(self) -> None:
        tight = replace(LIMITS, memory_bytes=512 * 1024**2)
        async with open_cutters(tight, count=1) as cutters:
            with pytest.raises((UncuttableError, CutterDiedError)):
                await cutters.cut(a_request("word \U0001f600\n\n".encode() * 4_000_000))

            assert await cutters.cut(a_request()) == cut(a_request())

    async def test_a_caller_that_goes_away_leaves_no_half_answer(self, cutters: Cutters) -> None:
        await cutters.cut(a_request())
        task = asyncio.create_task(cutters.cut(a_request(b"# A\n\ntext\n\n" * 50_000)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert await cutters.cut(a_request()) == cut(a_request())


class TestWaiting:
    async def test_documents_take_turns(self, cutters: Cutters) -> None:
        requests = [a_request(f"# {i}\n\ntext\n".encode()) for i in range(4)]

        results = await asyncio.gather(*(cutters.cut(request) for request in requests))

        assert [f"{i}" for i in range(4)] == [result.title for result in results]
        assert len(processes(cutters)) == 1

    async def test_who_waits_too_long_is_told_to_come_back(self) -> None:
        async with open_cutters(replace(LIMITS, patience=0.05), count=1) as cutters:
            busy = asyncio.create_task(cutters.cut(a_request()))
            await asyncio.sleep(0)

            with pytest.raises(ResourceExhaustedError):
                await cutters.cut(a_request())

            await busy


class TestClose:
    async def test_ends_every_process(self) -> None:
        async with open_cutters(LIMITS, count=2) as cutters:
            await asyncio.gather(cutters.cut(a_request()), cutters.cut(a_request()))
            pids = processes(cutters)
            assert len(pids) == 2

        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
