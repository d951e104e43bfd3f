"""Both buses keep the contract of `services.common.hints`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial

import pytest

from services.common import session
from services.common.bus import nats_session, outbox, postgres
from services.common.bus.open import Bus
from tests.conftest import PostgresServer
from tests.contracts.hints import (
    ENOUGH,
    NEVER,
    SOON,
    Station,
    connected,
    eventually,
    hinted,
    nats_station,
    postgres_station,
    quiet,
    returns,
)


@pytest.fixture
async def postgres_bus(postgres_server: PostgresServer) -> AsyncIterator[Station]:
    """PostgreSQL's, which needs no tables."""
    async with postgres_station(postgres_server.dsn("postgres")) as station:
        yield station


@pytest.fixture
async def nats_bus() -> AsyncIterator[Station]:
    """That of NATS, which needs no database."""
    async with nats_station() as station:
        yield station


@pytest.fixture(params=["postgres", "nats"])
def station(request: pytest.FixtureRequest) -> Station:
    """Each kind of bus in turn."""
    station: Station = request.getfixturevalue(f"{request.param}_bus")
    return station


async def opened(station: Station, stack: AsyncExitStack, *, count: int = 2) -> Sequence[Bus]:
    """Buses of so many processes that hear one another."""
    buses = [await stack.enter_async_context(station.open()) for _ in range(count)]
    await connected(*buses)
    return buses


class TestHints:
    async def test_a_hint_reaches_all_who_wait_for_its_key_in_all_processes(
        self, station: Station
    ) -> None:
        async with AsyncExitStack() as stack:
            buses = await opened(station, stack, count=3)
            theirs = [
                stack.enter_context(hinted(bus.listener, "a")) for bus in buses for _ in range(2)
            ]
            others = stack.enter_context(hinted(buses[1].listener, "b"))
            for each in (*theirs, others):
                await quiet(each)

            buses[0].notifier.notify("a")

            assert all([await returns(each) for each in theirs])
            assert not await returns(others, within=0.2)

    async def test_one_who_is_called_is_called_for_its_keys_until_it_leaves(
        self, station: Station
    ) -> None:
        called: list[str] = []
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)
            for key in ("a", "b"):
                stack.enter_context(one.listener.on_hint(key, partial(called.append, key)))
            with one.listener.on_hint("c", partial(called.append, "c")):
                other.notifier.notify("c")
                await eventually(lambda: "c" in called)
            for key in ("c", "b", "a"):
                other.notifier.notify(key)
            await eventually(lambda: {"a", "b"} <= set(called))

        assert called.count("c") <= 2

    async def test_one_that_came_just_now_is_reached(self, station: Station) -> None:
        """Also where others' hints at that key could not be heard a moment before."""
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)

            for number in range(50):
                with hinted(one.listener, f"just-{number}") as news:
                    other.notifier.notify(f"just-{number}")

                    assert await returns(news)

    async def test_a_hint_between_two_waits_is_kept(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)
            early, late = (stack.enter_context(one.listener.subscribe("a")) for _ in range(2))
            await quiet(early)
            await quiet(late)

            other.notifier.notify("a")

            assert await returns(early)
            assert await returns(late)
            assert not await returns(late, within=0.2)

    async def test_all_of_many_keys_arrive(self, station: Station) -> None:
        keys = [f"key-{number:030d}" for number in range(2000)]
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)
            waiting = [stack.enter_context(hinted(one.listener, key)) for key in keys]
            await connected(one, other)
            await asyncio.gather(*(quiet(each) for each in waiting))

            for key in keys:
                other.notifier.notify(key)

            heard = await asyncio.gather(*(returns(each, within=ENOUGH) for each in waiting))
            assert sum(heard) == len(keys)

    async def test_a_burst_wakes_a_few_times_and_its_last_hint_always(
        self, station: Station
    ) -> None:
        clock = asyncio.get_running_loop().time
        times: list[float] = []
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)
            news = stack.enter_context(one.listener.subscribe("a"))
            await quiet(news)

            async def look() -> None:
                while True:
                    await news.wait()
                    times.append(clock())

            looking = asyncio.create_task(look())
            began, hints = clock(), 0
            while clock() < began + 0.5:
                other.notifier.notify("a")
                hints += 1
                await asyncio.sleep(0)
            last_hint = clock()
            await asyncio.wait({looking}, timeout=0.5)
            looking.cancel()

        assert len(times) <= min(hints, (times[-1] - began) / 0.01 + 2)
        assert times[-1] >= last_hint - 0.01

    async def test_without_a_hint_a_waiter_returns_to_look(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(station.open(poll=0.1))
            await connected(bus)
            news = stack.enter_context(bus.listener.subscribe("a"))

            assert await returns(news)
            assert await returns(news)

    async def test_wake_ends_a_wait(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            (bus,) = await opened(station, stack, count=1)
            news = stack.enter_context(bus.listener.subscribe("a"))
            await quiet(news)

            news.wake()

            assert await returns(news)

    async def test_what_waits_is_sent_before_the_end(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            (bus,) = await opened(station, stack, count=1)
            with hinted(bus.listener, "a") as news:
                async with station.open() as leaving:
                    await connected(bus, leaving)
                    await quiet(news)
                    leaving.notifier.notify("a")

                assert await returns(news)

    async def test_what_makes_no_sense_is_ignored(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            one, other = await opened(station, stack)
            news = stack.enter_context(hinted(one.listener, "a"))
            await quiet(news)

            for nonsense in (b"", b",", b",,,", b"\xff\xfe\x00", b"{}", b"b" * 100_000):
                await station.say(nonsense)
            assert not await returns(news, within=0.3)
            other.notifier.notify("a")

            assert await returns(news)

    @pytest.mark.parametrize("key", ["", "a,b", "k" * 201, "知" * 67])
    async def test_what_is_not_a_key_is_refused(self, station: Station, key: str) -> None:
        async with station.open() as bus:
            with pytest.raises(ValueError, match="not a key"):
                bus.notifier.notify(key)


class TestOutage:
    async def test_without_a_server_notifying_never_waits_and_the_poll_goes_on(
        self, station: Station
    ) -> None:
        await station.cut()
        async with asyncio.timeout(SOON), station.open(poll=0.1, cuttable=True) as bus:
            with bus.listener.subscribe("a") as news:
                for number in range(1000):
                    bus.notifier.notify(str(number))

                assert await returns(news)
                assert await returns(news)

    async def test_a_loss_wakes_those_who_poll_and_no_others(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(station.open(cuttable=True))
            await connected(bus)
            polling = [stack.enter_context(bus.listener.subscribe(key)) for key in ("a", "b")]
            hint_only = stack.enter_context(hinted(bus.listener, "a"))
            for each in (*polling, hint_only):
                await quiet(each)

            await station.cut()

            assert await returns(polling[0])
            assert await returns(polling[1])
            assert not await returns(hint_only, within=0.2)

    async def test_after_a_loss_hints_are_heard_and_sent_again(self, station: Station) -> None:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(station.open(cuttable=True))
            other = await stack.enter_async_context(station.open())
            await connected(bus, other)
            ours = stack.enter_context(hinted(bus.listener, "a"))
            theirs = stack.enter_context(hinted(other.listener, "b"))

            await station.cut()
            bus.notifier.notify("b")
            await station.proxy.listen()

            assert await returns(theirs, within=ENOUGH)
            await connected(bus, other)
            await quiet(ours)
            other.notifier.notify("a")
            assert await returns(ours)

    async def test_what_was_missed_is_looked_for_on_return(self, station: Station) -> None:
        """Nobody sends that hint again, and the poll is far off."""
        clock = asyncio.get_running_loop().time
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(station.open(cuttable=True))
            other = await stack.enter_async_context(station.open())
            await connected(bus, other)
            news = stack.enter_context(bus.listener.subscribe("a"))
            await quiet(news)
            await station.cut()
            await quiet(news)
            other.notifier.notify("a")
            await connected(other)

            began, accepted = clock(), station.proxy.accepted
            await station.proxy.listen()

            assert await returns(news, within=0.7 * NEVER)
            assert station.proxy.accepted > accepted
            assert clock() - began < 0.7 * NEVER

    async def test_of_too_many_keys_the_newest_are_kept(
        self, station: Station, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        most = 100_000
        assert most == outbox.MAX_WAITING_KEYS
        await station.cut()
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(station.open(cuttable=True))
            other = await stack.enter_async_context(station.open())
            await connected(other)
            gone, first_kept, last = (
                stack.enter_context(hinted(other.listener, str(number)))
                for number in (9, 10, most + 9)
            )
            for each in (gone, first_kept, last):
                await quiet(each)

            for number in range(most + 10):
                bus.notifier.notify(str(number))
            await station.proxy.listen()

            assert await returns(last, within=ENOUGH)
            assert await returns(first_kept, within=ENOUGH)
            assert not await returns(gone, within=0.3)

    async def test_a_connection_that_fell_silent_is_given_up(
        self, station: Station, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (postgres, nats_session):
            monkeypatch.setattr(module, "_CHECK", 0.2)
        monkeypatch.setattr(postgres, "_ANSWER_TIMEOUT", 0.5)
        monkeypatch.setattr(nats_session, "ANSWER_TIMEOUT", 0.5)
        monkeypatch.setattr(session, "_CLOSE_GRACE", 0.2)
        with ExitStack() as stack:
            async with station.open(cuttable=True) as bus, station.open() as other:
                await connected(bus, other)
                polling = stack.enter_context(bus.listener.subscribe("a"))
                hint_only = stack.enter_context(hinted(bus.listener, "a"))
                await quiet(polling)

                station.proxy.hold()

                assert await returns(polling)
                station.proxy.release()
                await connected(bus, other)
                await quiet(hint_only)
                other.notifier.notify("a")
                assert await returns(hint_only)
