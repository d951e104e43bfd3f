"""Waiting for hints, whatever brings them; tests/contracts/test_hints.py brings real ones."""

import asyncio
from collections.abc import Awaitable

import pytest

from services.common.bus.waiters import Waiters

NEVER = 600.0


async def _returns(waiting: Awaitable[None], *, within: float = 5.0) -> bool:
    try:
        await asyncio.wait_for(waiting, within)
    except TimeoutError:
        return False
    return True


class TestWaiters:
    async def test_a_hint_wakes_all_who_wait_for_its_key_and_no_others(self) -> None:
        waiters = Waiters(poll=NEVER)
        with (
            waiters.subscribe("a") as one,
            waiters.subscribe("a", poll=False) as two,
            waiters.subscribe("b") as other,
        ):
            waiters.wake(["x", "a", "y", ""])

            assert await _returns(one.wait())
            assert await _returns(two.wait())
            assert not await _returns(other.wait(), within=0.05)

    async def test_a_hint_between_two_waits_is_kept(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as waiter:
            waiters.wake(["a"])
            waiters.wake(["a"])

            assert await _returns(waiter.wait())
            assert not await _returns(waiter.wait(), within=0.05)

    async def test_only_those_who_poll_return_without_a_hint(self) -> None:
        waiters = Waiters(poll=0.02)
        with waiters.subscribe("a") as polling, waiters.subscribe("a", poll=False) as hinted:
            assert await _returns(polling.wait())
            assert await _returns(polling.wait())
            assert not await _returns(hinted.wait(), within=0.1)

    async def test_those_who_poll_do_so_at_different_times(self) -> None:
        waiters = Waiters(poll=1.0)

        times = {waiters.patience() for _ in range(100)}

        assert len(times) > 1
        assert min(times) >= 0.75
        assert max(times) <= 1.0

    async def test_where_hearing_begins_and_ends_those_who_poll_are_woken(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as polling, waiters.subscribe("a", poll=False) as hinted:
            with waiters.hearing():
                assert await _returns(polling.wait())
                assert not await _returns(polling.wait(), within=0.05)

            assert await _returns(polling.wait())
            assert not await _returns(hinted.wait(), within=0.05)

    async def test_only_the_first_and_the_last_waiter_change_the_keys(self) -> None:
        waiters = Waiters(poll=NEVER)
        changes: list[tuple[str, bool]] = []

        def note() -> None:
            changes.append(("".join(sorted(waiters.keys)), waiters.keys_changed.is_set()))
            waiters.keys_changed.clear()

        with waiters.subscribe("a"):
            note()
            with waiters.subscribe("a"), waiters.subscribe("b"):
                note()
            note()
            with waiters.subscribe("a"):
                note()
        note()

        assert changes == [("a", True), ("ab", True), ("a", True), ("a", False), ("", True)]

    async def test_cancellation_passes_through(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as waiter:
            waiting = asyncio.create_task(waiter.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
