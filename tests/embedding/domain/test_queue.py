import asyncio

from hypothesis import given
from hypothesis import strategies as st

from services.embedding.domain.models import BatchLimits, Fault
from services.embedding.domain.queue import Job, TextQueue

LIMITS = BatchLimits(max_texts=4, max_chars=20, alone_above=10)


def make_job(loop: asyncio.AbstractEventLoop, texts: list[str]) -> Job:
    return Job(texts, loop.create_future())


def drain(jobs: list[list[str]], limits: BatchLimits = LIMITS) -> list[list[str]]:
    """The batches that these jobs are dealt in."""
    loop = asyncio.new_event_loop()
    try:
        queue = TextQueue(limits)
        for texts in jobs:
            queue.add(make_job(loop, texts))
        batches = []
        while queue:
            batches.append([text for part in queue.take() for text in part.texts])
        assert (queue.texts, queue.chars) == (0, 0)
        return batches
    finally:
        loop.close()


class TestTake:
    def test_small_jobs_are_joined(self) -> None:
        assert drain([["a"], ["b"], ["c", "d"], ["e"]]) == [["a", "b", "c", "d"], ["e"]]

    def test_a_large_job_is_split(self) -> None:
        assert drain([["1", "2", "3", "4", "5", "6"]]) == [["1", "2", "3", "4"], ["5", "6"]]

    def test_characters_are_limited_too(self) -> None:
        ten = "x" * 10

        assert [[ten, ten], [ten]] == drain([[ten, ten, ten]])

    def test_a_long_text_travels_alone(self) -> None:
        long = "x" * 11

        assert [["a"], [long], ["b"]] == drain([["a", long, "b"]])

    def test_a_text_over_every_limit_still_travels(self) -> None:
        assert drain([["x" * 1000], ["y"]]) == [["x" * 1000], ["y"]]

    def test_jobs_take_turns(self) -> None:
        large = [f"L{at}" for at in range(8)]

        batches = drain([large, ["s1", "s2"], ["t1"]])

        assert [large[:4], ["s1", "s2", "t1", "L4"], large[5:]] == batches

    @given(
        st.lists(st.lists(st.integers(1, 30).map("x".__mul__), min_size=1, max_size=9), max_size=9),
        st.builds(
            BatchLimits,
            max_texts=st.integers(1, 5),
            max_chars=st.integers(1, 40),
            alone_above=st.integers(1, 40),
        ),
    )
    def test_no_batch_breaks_a_limit_and_no_text_is_lost(
        self, jobs: list[list[str]], limits: BatchLimits
    ) -> None:
        batches = drain(jobs, limits)

        assert sorted(text for job in jobs for text in job) == sorted(
            text for batch in batches for text in batch
        )
        for batch in batches:
            assert 1 <= len(batch) <= limits.max_texts
            if len(batch) > 1:
                assert sum(map(len, batch)) <= limits.max_chars
                assert max(map(len, batch)) <= limits.alone_above


class TestDrop:
    async def test_what_is_left_of_a_job_is_forgotten(self) -> None:
        queue = TextQueue(LIMITS)
        gone, stays = (make_job(asyncio.get_running_loop(), ["a"] * 6) for _ in range(2))
        queue.add(gone)
        queue.add(stays)
        queue.take()

        queue.drop(gone)
        queue.drop(gone)

        assert (queue.texts, queue.chars) == (6, 6)
        assert [stays] == [part.job for part in queue.take()]


class TestJob:
    async def test_it_is_done_when_all_its_texts_are_in_whatever_their_order(self) -> None:
        job = make_job(asyncio.get_running_loop(), ["a", "b", "c"])
        faults = [Fault("x", f"{at}") for at in range(3)]

        job.settle(2, faults[2:])
        assert not job.done.done()
        job.settle(0, faults[:2])

        assert faults == await job.done

    async def test_what_comes_after_its_end_is_let_be(self) -> None:
        job = make_job(asyncio.get_running_loop(), ["a"])
        job.done.cancel()

        job.settle(0, [Fault("x", "y")])
        job.fail(ValueError())

        assert job.done.cancelled()
