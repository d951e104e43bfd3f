"""Waiting for hints, whatever brings them; tests/contracts/test_hints.py brings real ones."""

import asyncio
from collections.abc import Awaitable
from functools import partial

import pytest

from services.common.bus.waiters import Waiters

NEVER = 600.0


async def _returns(waiting: Awaitable[None], *, within: float = 5.0) -> bool:
    try:
        await asyncio.wait_for(waiting, within)
    except TimeoutError:
        return False
    return True


class TestSubscribe:
    async def test_a_hint_wakes_all_who_wait_for_its_key_and_no_others(self) -> None:
        waiters = Waiters(poll=NEVER)
        with (
            waiters.subscribe("a") as one,
            waiters.subscribe("a") as two,
            waiters.subscribe("b") as other,
        ):
            waiters.pass_on(["x", "a", "y", ""])

            assert await _returns(one.wait())
            assert await _returns(two.wait())
            assert not await _returns(other.wait(), within=0.05)

    async def test_a_hint_between_two_waits_is_kept(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as waiter:
            waiters.pass_on(["a"])
            waiters.pass_on(["a"])

            assert await _returns(waiter.wait())
            assert not await _returns(waiter.wait(), within=0.05)

    async def test_without_a_hint_it_returns_now_and_then(self) -> None:
        waiters = Waiters(poll=0.02)
        with waiters.subscribe("a") as waiter:
            assert await _returns(waiter.wait())
            assert await _returns(waiter.wait())

    async def test_those_who_poll_do_so_at_different_times(self) -> None:
        clock = asyncio.get_running_loop().time
        waiters = Waiters(poll=0.4)

        async def polled() -> float:
            with waiters.subscribe("a") as waiter:
                await waiter.wait()
            return clock()

        times = await asyncio.gather(*(polled() for _ in range(200)))

        assert max(times) - min(times) > 0.05

    async def test_where_hearing_begins_and_ends_all_return(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as waiter:
            with waiters.hearing():
                assert await _returns(waiter.wait())
                assert not await _returns(waiter.wait(), within=0.05)

            assert await _returns(waiter.wait())

    async def test_cancellation_passes_through(self) -> None:
        waiters = Waiters(poll=NEVER)
        with waiters.subscribe("a") as waiter:
            waiting = asyncio.create_task(waiter.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting


class TestOnHint:
    async def test_each_is_called_for_its_key_until_the_end_of_its_block(self) -> None:
        waiters, called = Waiters(poll=0.01), list[str]()
        with (
            waiters.on_hint("a", partial(called.append, "one")),
            waiters.on_hint("b", partial(called.append, "other")),
        ):
            with waiters.on_hint("a", partial(called.append, "two")):
                waiters.pass_on(["a"])
            waiters.pass_on(["a", "c"])

        assert called == ["one", "two", "one"]

    async def test_nobody_is_called_without_a_hint(self) -> None:
        waiters, called = Waiters(poll=0.01), list[str]()
        with waiters.on_hint("a", partial(called.append, "a")), waiters.subscribe("a") as waiter:
            with waiters.hearing():
                await waiter.wait()
            await waiter.wait()
            await waiter.wait()

        assert called == []

    async def test_one_who_is_called_may_come_and_go(self) -> None:
        waiters, called = Waiters(poll=NEVER), list[str]()

        def call() -> None:
            with waiters.on_hint("a", partial(called.append, "never")):
                called.append("once")

        with waiters.on_hint("a", call), waiters.on_hint("a", partial(called.append, "too")):
            waiters.pass_on(["a"])

        assert called == ["once", "too"]


class TestKeys:
    async def test_only_the_first_and_the_last_who_waits_changes_them(self) -> None:
        waiters = Waiters(poll=NEVER)
        changes: list[tuple[str, bool]] = []

        def note() -> None:
            changes.append(("".join(sorted(waiters.keys)), waiters.keys_changed.is_set()))
            waiters.keys_changed.clear()

        with waiters.subscribe("a"):
            note()
            with waiters.subscribe("a"), waiters.on_hint("b", note):
                note()
            note()
            with waiters.on_hint("a", note):
                note()
        note()

        assert changes == [("a", True), ("ab", True), ("a", True), ("a", False), ("", True)]
