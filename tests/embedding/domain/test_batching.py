import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest

from services.common.tasks import background_tasks
from services.embedding.domain.batching import QUERIES_IN_A_ROW, Batcher
from services.embedding.domain.errors import BackendUnavailableError, BusyError
from services.embedding.domain.models import BatchLimits, Fault, Outcome, Purpose, Vector
from tests.embedding.memory_backend import MemoryBackend, toy_vector

LIMITS = BatchLimits(max_texts=10, max_chars=1000, alone_above=500)


def make_batcher(
    backend: MemoryBackend, *, concurrency: int = 1, pending: tuple[int, int] = (100, 10_000)
) -> Batcher:
    return Batcher(
        backend,
        LIMITS,
        concurrency=concurrency,
        max_pending_texts=pending[0],
        max_pending_chars=pending[1],
    )


@asynccontextmanager
async def running(batcher: Batcher) -> AsyncIterator[Batcher]:
    async with background_tasks() as tasks:
        tasks.start("batcher", batcher.run())
        yield batcher


def numbers(outcome: Outcome) -> list[float]:
    assert isinstance(outcome, Vector)
    values: list[float] = outcome.values.tolist()
    return values


@asynccontextmanager
async def waiting(
    batcher: Batcher, backend: MemoryBackend, *asked: tuple[list[str], Purpose]
) -> AsyncIterator[list[asyncio.Task[list[Outcome]]]]:
    """Callers who wait while a first call is held at the backend; after the block it goes on."""
    backend.gate.clear()
    calls = len(backend.calls)
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.embed(["held"], Purpose.DOCUMENT))
        await backend.until_begun(calls + 1)
        tasks = [group.create_task(batcher.embed(*each)) for each in asked]
        await asyncio.sleep(0)
        yield tasks
        backend.gate.set()


class TestJoining:
    async def test_a_lone_text_does_not_wait_for_company(self) -> None:
        backend = MemoryBackend()
        async with running(make_batcher(backend)) as batcher:
            (outcome,) = await batcher.embed(["hello"], Purpose.QUERY)

        assert numbers(toy_vector("hello")) == numbers(outcome)
        assert backend.calls == [(["hello"], Purpose.QUERY)]

    async def test_forty_callers_share_few_calls_and_each_gets_its_own(self) -> None:
        backend = MemoryBackend()
        texts = [f"text {at}" for at in range(40)]
        async with (
            running(make_batcher(backend)) as batcher,
            waiting(batcher, backend, *(([text], Purpose.QUERY) for text in texts)) as tasks,
        ):
            pass

        assert [numbers(toy_vector(text)) for text in texts] == [
            numbers(task.result()[0]) for task in tasks
        ]
        assert len(backend.calls) == 1 + 4

    async def test_a_large_request_is_split_and_put_together_in_order(self) -> None:
        backend = MemoryBackend()
        texts = [f"text {at}" for at in range(35)]
        async with running(make_batcher(backend, concurrency=3)) as batcher:
            found = await batcher.embed(texts, Purpose.DOCUMENT)

        assert [numbers(toy_vector(text)) for text in texts] == [numbers(each) for each in found]
        assert [len(each) for each, _ in backend.calls] == [10, 10, 10, 5]

    async def test_no_more_calls_run_at_once_than_allowed(self) -> None:
        backend = MemoryBackend()
        backend.gate.clear()
        batcher = make_batcher(backend, concurrency=2)
        async with running(batcher), asyncio.TaskGroup() as group:
            group.create_task(batcher.embed(["x"] * 35, Purpose.DOCUMENT))
            await backend.until_begun(2)
            await asyncio.sleep(0)
            assert len(backend.calls) == 2
            backend.gate.set()

    async def test_purposes_are_not_mixed_in_a_call(self) -> None:
        backend = MemoryBackend()
        asked = ((["d"], Purpose.DOCUMENT), (["q"], Purpose.QUERY))
        batcher = make_batcher(backend)
        async with running(batcher), waiting(batcher, backend, *asked):
            pass

        assert backend.calls[1:] == [(["q"], Purpose.QUERY), (["d"], Purpose.DOCUMENT)]

    async def test_no_texts_need_no_call(self) -> None:
        backend = MemoryBackend()
        async with running(make_batcher(backend)) as batcher:
            assert await batcher.embed([], Purpose.QUERY) == []

        assert backend.calls == []


class TestPriority:
    async def test_a_query_overtakes_ten_thousand_pieces(self) -> None:
        backend = MemoryBackend()
        pieces = [f"piece {at}" for at in range(10_000)]
        batcher = make_batcher(backend, pending=(20_000, 10**6))
        async with (
            running(batcher),
            waiting(batcher, backend, (pieces, Purpose.DOCUMENT), (["where?"], Purpose.QUERY)),
        ):
            pass

        assert backend.calls[1] == (["where?"], Purpose.QUERY)

    async def test_documents_get_a_turn_however_many_queries_wait(self) -> None:
        backend = MemoryBackend()
        batcher = make_batcher(backend, pending=(1000, 100_000))
        queries = [f"q{at}" for at in range(10 * (QUERIES_IN_A_ROW + 4))]
        async with (
            running(batcher),
            waiting(batcher, backend, (queries, Purpose.QUERY), (["d"], Purpose.DOCUMENT)),
        ):
            pass

        order = [purpose for _, purpose in backend.calls[1:]]
        assert order.index(Purpose.DOCUMENT) == QUERIES_IN_A_ROW

    async def test_a_small_document_does_not_wait_for_a_large_one(self) -> None:
        backend = MemoryBackend()
        large = [f"large {at}" for at in range(60)]
        async with (
            running(make_batcher(backend)) as batcher,
            waiting(batcher, backend, (large, Purpose.DOCUMENT), (["small"], Purpose.DOCUMENT)),
        ):
            pass

        assert "small" in backend.calls[2][0]


class TestIsolation:
    async def test_a_strangers_bad_text_fails_nobody_else(self) -> None:
        backend = MemoryBackend()
        async with (
            running(make_batcher(backend)) as batcher,
            waiting(
                batcher,
                backend,
                (["good 1", "good 2"], Purpose.DOCUMENT),
                (["good 3", "poison"], Purpose.DOCUMENT),
                (["good 4"], Purpose.DOCUMENT),
            ) as (first, second, third),
        ):
            pass

        assert backend.calls[1][0] == ["good 1", "good 2", "good 3", "poison", "good 4"]
        assert [isinstance(each, Vector) for each in first.result()] == [True, True]
        assert [isinstance(each, Vector) for each in second.result()] == [True, False]
        assert [isinstance(each, Vector) for each in third.result()] == [True]

    async def test_every_bad_text_of_a_large_request_is_named(self) -> None:
        backend = MemoryBackend()
        texts = ["poison" if at in {3, 17, 34} else f"{at}" for at in range(35)]
        async with running(make_batcher(backend)) as batcher:
            found = await batcher.embed(texts, Purpose.DOCUMENT)

        assert [at for at, each in enumerate(found) if isinstance(each, Fault)] == [3, 17, 34]

    async def test_a_call_that_could_not_be_made_fails_its_callers_and_their_rest(self) -> None:
        backend = MemoryBackend()
        backend.broken = BackendUnavailableError(backend.spec, "it is down")
        async with running(make_batcher(backend)) as batcher:
            with pytest.raises(BackendUnavailableError):
                await batcher.embed(["x"] * 35, Purpose.DOCUMENT)
            assert len(backend.calls) == 1

            backend.broken = None
            assert len(await batcher.embed(["again"], Purpose.DOCUMENT)) == 1

    async def test_a_fault_of_the_backend_class_ends_a_call_and_not_the_service(self) -> None:
        backend = MemoryBackend()
        backend.broken = ZeroDivisionError()
        async with running(make_batcher(backend)) as batcher:
            with pytest.raises(ZeroDivisionError):
                await batcher.embed(["x"], Purpose.DOCUMENT)

            backend.broken = None
            assert len(await batcher.embed(["again"], Purpose.DOCUMENT)) == 1


class TestCancellation:
    async def test_texts_of_a_caller_who_left_are_not_embedded(self) -> None:
        backend = MemoryBackend()
        async with (
            running(make_batcher(backend)) as batcher,
            waiting(
                batcher, backend, (["gone"] * 30, Purpose.DOCUMENT), (["stays"], Purpose.DOCUMENT)
            ) as (gone, stays),
        ):
            gone.cancel()
            await asyncio.sleep(0)

        assert gone.cancelled()
        assert [texts for texts, _ in backend.calls] == [["held"], ["stays"]]
        assert len(stays.result()) == 1

    async def test_a_caller_who_leaves_during_the_call_leaves_the_others_be(self) -> None:
        backend = MemoryBackend()
        async with (
            running(make_batcher(backend)) as batcher,
            waiting(batcher, backend, (["gone"], Purpose.QUERY), (["stays"], Purpose.QUERY)) as (
                gone,
                stays,
            ),
        ):
            backend.gate.set()
            await backend.until_begun(2)
            gone.cancel()

        assert len(stays.result()) == 1


class TestBounds:
    async def test_too_many_waiting_texts_are_refused(self) -> None:
        backend = MemoryBackend()
        batcher = make_batcher(backend, pending=(3, 1000))
        waits = (["a", "b"], Purpose.DOCUMENT)
        async with running(batcher), waiting(batcher, backend, waits):
            with pytest.raises(BusyError):
                await batcher.embed(["c", "d"], Purpose.DOCUMENT)

    async def test_too_many_waiting_characters_are_refused(self) -> None:
        backend = MemoryBackend()
        batcher = make_batcher(backend, pending=(100, 10))
        waits = (["x" * 9], Purpose.DOCUMENT)
        async with running(batcher), waiting(batcher, backend, waits):
            with pytest.raises(BusyError):
                await batcher.embed(["xx"], Purpose.DOCUMENT)

    async def test_an_ingest_that_fills_its_queue_leaves_room_for_queries(self) -> None:
        backend = MemoryBackend()
        batcher = make_batcher(backend, pending=(3, 1000))
        async with (
            running(batcher),
            waiting(batcher, backend, (["a"] * 3, Purpose.DOCUMENT), (["q"], Purpose.QUERY)) as (
                _,
                query,
            ),
        ):
            pass

        assert len(query.result()) == 1

    async def test_a_request_larger_than_the_bound_is_taken_when_nothing_waits(self) -> None:
        backend = MemoryBackend()
        async with running(make_batcher(backend, pending=(3, 3))) as batcher:
            assert len(await batcher.embed(["long"] * 20, Purpose.DOCUMENT)) == 20

    async def test_a_refused_caller_may_come_again(self) -> None:
        backend = MemoryBackend()
        batcher = make_batcher(backend, pending=(1, 100))
        async with running(batcher):
            async with waiting(batcher, backend, (["a"], Purpose.DOCUMENT)):
                with pytest.raises(BusyError):
                    await batcher.embed(["b"], Purpose.DOCUMENT)

            assert len(await batcher.embed(["b"], Purpose.DOCUMENT)) == 1


class TestEnd:
    async def test_whoever_waits_at_the_end_is_told_to_ask_again(self) -> None:
        backend = MemoryBackend()
        backend.gate.clear()
        batcher = make_batcher(backend)
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(batcher.run())
            held = group.create_task(_error_of(batcher.embed(["held"], Purpose.DOCUMENT)))
            await backend.until_begun(1)
            waits = group.create_task(_error_of(batcher.embed(["waits"], Purpose.QUERY)))
            await asyncio.sleep(0)
            worker.cancel()

        assert isinstance(held.result(), BackendUnavailableError)
        assert isinstance(waits.result(), BackendUnavailableError)
        with pytest.raises(BackendUnavailableError):
            await batcher.embed(["late"], Purpose.QUERY)


async def _error_of(call: Coroutine[None, None, list[Outcome]]) -> Exception | None:
    try:
        await call
    except BackendUnavailableError as error:
        return error
    return None
