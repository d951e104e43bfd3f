import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from services.agent.domain.places import Places, callers_place, own_place


def taken(most: int, *, runs: int | None = None, most_lent: int = 9) -> Places:
    """Places of which so many, or all, are taken."""
    places = Places(most, most_lent=most_lent)
    for _ in range(most if runs is None else runs):
        places.take()
    return places


class Waiter:
    """A run that lends its place and wants it back when it is told to."""

    def __init__(self, places: Places) -> None:
        self.wants, self.back, self.goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.task = asyncio.ensure_future(self._wait(places))

    async def _wait(self, places: Places) -> None:
        with places.lent() as loan:
            await self.wants.wait()
            await loan.regain()
            self.back.set()
            await self.goes_on.wait()


async def waiters(places: Places, count: int) -> list[Waiter]:
    found = [Waiter(places) for _ in range(count)]
    await settled()
    return found


async def settled() -> None:
    """Once every task has done what it can do."""
    for _ in range(10):
        await asyncio.sleep(0)


class TestRuns:
    def test_there_are_so_many_and_an_end_frees_one(self) -> None:
        places = taken(3, runs=1)
        assert places.free == 2

        places.take()
        places.take()
        assert places.free == 0

        places.give_back()
        assert places.free == 1

    def test_whoever_asked_is_told_that_one_came_free(self) -> None:
        places, told = taken(1), list[int]()
        places.tell(lambda: told.append(places.free))

        places.give_back()

        assert told == [1]


class TestLent:
    async def test_another_run_may_begin_meanwhile(self) -> None:
        places, told = taken(1), list[int]()
        places.tell(lambda: told.append(places.free))

        with places.lent() as loan:
            assert (places.free, told) == (1, [1])
            await loan.regain()
            assert places.free == 0

        assert places.free == 0

    async def test_it_is_regained_before_a_run_begins(self) -> None:
        places = taken(1)
        [waiter] = await waiters(places, 1)
        places.take()
        waiter.wants.set()
        await settled()
        assert not waiter.back.is_set()

        places.give_back()
        await settled()

        assert waiter.back.is_set()
        assert places.free == 0
        waiter.goes_on.set()
        await waiter.task

    async def test_they_are_regained_in_order(self) -> None:
        places = taken(2)
        first, second = await waiters(places, 2)
        places.take()
        places.take()
        for waiter in (first, second):
            waiter.wants.set()
            await settled()

        places.give_back()
        await settled()
        assert (first.back.is_set(), second.back.is_set()) == (True, False)

        places.give_back()
        await settled()
        assert second.back.is_set()
        for waiter in (first, second):
            waiter.goes_on.set()
            await waiter.task

    async def test_asking_for_it_again_takes_no_second_one(self) -> None:
        places = taken(1, most_lent=0)
        with places.lent() as loan:
            await loan.regain()
            await loan.regain()

        places.give_back()

        assert places.free == 1

    async def test_so_many_may_be_without_one_and_no_more_begin(self) -> None:
        places = taken(2, most_lent=1)

        lenders = await waiters(places, 2)

        assert places.free == 1
        places.take()
        assert places.free == 0
        for waiter in lenders:
            waiter.task.cancel()
        await asyncio.wait([waiter.task for waiter in lenders])

    async def test_who_fails_meanwhile_waits_for_nobody(self) -> None:
        places = taken(1)

        with suppress(KeyError), places.lent():
            places.take()
            raise KeyError

        places.give_back()
        assert places.free == 0
        places.give_back()
        assert places.free == 1

    @pytest.mark.parametrize(
        "when",
        [
            pytest.param(lambda waiter, places: waiter.task.cancel(), id="before its turn"),
            pytest.param(
                lambda waiter, places: (waiter.task.cancel(), places.give_back(), places.take()),
                id="before, and a place comes free",
            ),
            pytest.param(
                lambda waiter, places: (places.give_back(), waiter.task.cancel(), places.take()),
                id="just after its turn",
            ),
        ],
    )
    async def test_who_is_cancelled_leaves_the_count_right(
        self, when: Callable[[Waiter, Places], object]
    ) -> None:
        places = taken(1)
        [waiter] = await waiters(places, 1)
        places.take()
        waiter.wants.set()
        await settled()

        when(waiter, places)
        await asyncio.wait({waiter.task})

        assert waiter.task.cancelled()
        places.give_back()
        assert places.free == 0
        places.give_back()
        assert places.free == 1


class Asked:
    """A sub-agent of the run that makes it, and of the tasks that it starts; it works, then waits.

    Attributes:
        waits, wants, ends: set to have it wait, want its place back, and end.
        back: set once it has it back.
    """

    def __init__(self, places: Places) -> None:
        self.waits, self.wants, self.ends = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.back = asyncio.Event()
        self.task = asyncio.ensure_future(self._asked(places))

    async def _asked(self, places: Places) -> None:
        with callers_place():
            await asyncio.ensure_future(self._work(places))

    async def _work(self, places: Places) -> None:
        await self.waits.wait()
        with places.lent() as loan:
            await self.wants.wait()
            await loan.regain()
        self.back.set()
        await self.ends.wait()


async def asked(places: Places, count: int) -> list[Asked]:
    """The sub-agents of one run."""
    with own_place():
        found = [Asked(places) for _ in range(count)]
    await settled()
    return found


class TestShared:
    async def test_it_is_lent_once_and_only_while_all_wait(self) -> None:
        places = taken(1)
        first, second = await asked(places, 2)

        first.waits.set()
        await settled()
        assert places.free == 0

        second.waits.set()
        await settled()
        assert places.free == 1

        for each in (first, second):
            each.wants.set()
            each.ends.set()
        await asyncio.wait({first.task, second.task})
        assert places.free == 0
        places.give_back()
        assert places.free == 1

    async def test_what_one_regains_the_others_have_as_well(self) -> None:
        places = taken(1)
        first, second = await asked(places, 2)
        first.waits.set()
        second.waits.set()
        await settled()
        places.take()
        first.wants.set()
        second.wants.set()
        await settled()
        assert not first.back.is_set()

        places.give_back()
        await settled()

        assert (first.back.is_set(), second.back.is_set()) == (True, True)
        assert places.free == 0
        first.ends.set()
        second.ends.set()
        await asyncio.wait({first.task, second.task})

    async def test_it_is_lent_when_the_last_one_that_works_ends(self) -> None:
        places = taken(1)
        first, second = await asked(places, 2)
        for each in (first, second):
            each.waits.set()
        second.wants.set()
        second.ends.set()
        await settled()

        assert second.task.done()
        assert places.free == 1
        first.wants.set()
        first.ends.set()
        await first.task
        assert places.free == 0

    async def test_whoever_fails_brings_it_back_for_those_that_queue_for_it(self) -> None:
        places = taken(1)
        first, second = await asked(places, 2)
        first.waits.set()
        second.waits.set()
        await settled()
        places.take()
        first.wants.set()
        await settled()

        second.task.cancel()
        await asyncio.wait({second.task})
        places.give_back()
        await settled()

        assert first.back.is_set()
        first.ends.set()
        await first.task
        places.give_back()
        assert places.free == 1
