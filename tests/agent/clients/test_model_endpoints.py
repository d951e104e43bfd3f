import asyncio
from collections import Counter
from typing import Any

import pytest
import structlog

from services.agent.clients.model_breaker import BreakerPolicy, BreakerState
from services.agent.clients.model_endpoints import EndpointRules, Endpoints, RestingError, Turn
from services.agent.domain.chat import EndpointInfo, EndpointState
from services.agent.domain.places import Places

QUICK = BreakerPolicy(failures=2, rest_seconds=0.05, most_seconds=0.1)
LONG = BreakerPolicy(failures=2, rest_seconds=100, most_seconds=100)


def endpoints(
    count: int = 1, policy: BreakerPolicy = QUICK, places: Places | None = None
) -> Endpoints:
    rules = [EndpointRules(f"e{place}", priority=place) for place in range(count)]
    return pool(*rules, policy=policy, places=places)


def pool(
    *rules: EndpointRules, policy: BreakerPolicy = QUICK, places: Places | None = None
) -> Endpoints:
    return Endpoints(rules, policy=policy, places=places, log=structlog.get_logger())


def rules(weight: int = 1, *, priority: int = 0, most: int | None = None) -> EndpointRules:
    return EndpointRules("e", priority=priority, weight=weight, max_concurrent=most)


async def turn(order: Endpoints, *tried: int, within: float = 10) -> Turn:
    return await order.turn(tried, deadline=asyncio.get_running_loop().time() + within)


async def down(order: Endpoints, *places: int) -> None:
    """Let these fail until they rest."""
    others = [each for each in range(len(order.states())) if each not in places]
    for place in places:
        avoided = [each for each in (*others, *places) if each != place]
        for _ in range(2):
            with await turn(order, *avoided) as leave:
                assert leave.place == place
                leave.failed()


class TestOrder:
    async def test_the_first_is_asked_as_long_as_it_answers(self) -> None:
        order = endpoints(2)
        for _ in range(3):
            with await turn(order) as leave:
                leave.answered()

                assert leave.place == 0

    async def test_the_one_that_was_tried_least_is_next(self) -> None:
        order = endpoints(3)

        assert (await turn(order, 0)).place == 1
        assert (await turn(order, 0, 1)).place == 2
        assert (await turn(order, 0, 1, 2)).place == 0

    async def test_one_that_rests_is_passed_over(self) -> None:
        order = endpoints(2, LONG)
        await down(order, 0)

        assert (await turn(order)).place == 1
        assert order.states() == [BreakerState.OPEN, BreakerState.CLOSED]
        assert not order.fresher([1])
        assert order.rest == 0

    async def test_a_fresher_one_can_be_asked_at_once(self) -> None:
        order = endpoints(2)

        assert order.fresher([0])
        assert not order.fresher([0, 1])
        assert order.fresher([0, 1, 0])


class TestShares:
    async def asked(self, order: Endpoints, times: int) -> Counter[int]:
        """How often each was asked, all answering."""
        asked: Counter[int] = Counter()
        for _ in range(times):
            with await turn(order) as leave:
                leave.answered()
                asked[leave.place] += 1
        return asked

    async def test_endpoints_of_one_priority_share_the_calls_by_weight(self) -> None:
        order = pool(rules(3), rules(1))

        assert await self.asked(order, 40) == {0: 30, 1: 10}

    async def test_one_of_a_higher_priority_number_gets_none(self) -> None:
        order = pool(rules(), rules(), rules(100, priority=1))

        assert await self.asked(order, 40) == {0: 20, 1: 20}

    async def test_it_gets_all_while_the_others_rest(self) -> None:
        order = pool(rules(priority=1), rules(), policy=LONG)
        await down(order, 1)

        assert await self.asked(order, 4) == {0: 4}

    async def test_the_share_of_one_that_rests_goes_to_its_equals(self) -> None:
        order = pool(rules(2), rules(1), rules(1, priority=1), policy=LONG)
        await down(order, 0)

        assert await self.asked(order, 4) == {1: 4}


class TestLimit:
    async def test_a_call_goes_elsewhere_while_one_is_full(self) -> None:
        order = pool(rules(most=1), rules(priority=1))

        with await turn(order) as first, await turn(order) as second:
            assert (first.place, second.place) == (0, 1)
            assert not order.fresher([1])
        with await turn(order) as third:
            assert third.place == 0

    async def test_calls_wait_in_the_order_they_came_and_never_exceed_it(self) -> None:
        order, asked, at_once = pool(rules(most=2)), list[int](), 0

        async def ask(number: int) -> None:
            nonlocal at_once
            with await turn(order) as leave:
                asked.append(number)
                at_once += 1
                assert at_once <= 2
                await asyncio.sleep(0.001)
                at_once -= 1
                leave.answered()

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(ask(number))

        assert asked == list(range(20))
        assert order.infos()[0].calls == 0

    async def test_who_waits_lends_his_place(self) -> None:
        places = Places(1, most_lent=5)
        order = pool(rules(most=1), places=places)
        places.take()
        with await turn(order):
            waiting = asyncio.create_task(turn(order))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert places.free == 1

        (await waiting).answered()
        assert places.free == 0

    async def test_who_waits_too_long_is_told_that_it_is_busy(self) -> None:
        order = pool(rules(most=1))
        with await turn(order), pytest.raises(RestingError) as error:
            await turn(order, within=0.1)

        assert error.value.seconds == 0

    async def test_one_that_rests_and_is_full_is_waited_for_without_haste(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No busy loop, though its rest is over."""
        order, waking = pool(rules(most=1), rules(priority=1), policy=LONG), 0
        await down(order, 1)
        check = order._check

        def counted(deadline: float) -> None:
            nonlocal waking
            waking += 1
            check(deadline)

        monkeypatch.setattr(order, "_check", counted)
        with await turn(order), pytest.raises(RestingError):
            await turn(order, within=0.2)

        assert waking <= 5

    async def test_a_call_that_is_cancelled_gives_its_place_back(self) -> None:
        order = pool(rules(most=1))
        with pytest.raises(asyncio.CancelledError), await turn(order):
            raise asyncio.CancelledError

        assert order.infos()[0].calls == 0
        with await turn(order) as leave:
            leave.answered()

    async def test_one_who_waits_and_is_cancelled_lets_the_next_go_on(self) -> None:
        order = pool(rules(most=1))
        with await turn(order):
            first, second = (asyncio.create_task(turn(order)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)

        assert (await second).place == 0


class TestInfos:
    async def test_each_is_told_as_it_is(self) -> None:
        order = pool(rules(2, most=5), rules(), rules(priority=1), policy=LONG)
        await down(order, 2)
        with await turn(order):
            told = order.infos()

        assert told == [
            EndpointInfo(1, 0, 2, 5, EndpointState.HEALTHY, calls=1),
            EndpointInfo(2, 0, 1, 0, EndpointState.HEALTHY, calls=0),
            EndpointInfo(3, 1, 1, 0, EndpointState.RESTING, calls=0),
        ]

    async def test_a_probe_is_told(self) -> None:
        order = endpoints()
        await down(order, 0)
        with await turn(order):
            assert order.infos()[0].state is EndpointState.PROBING


class TestRest:
    async def test_a_call_waits_for_the_end_of_the_rest(self) -> None:
        order = endpoints()
        await down(order, 0)

        assert order.rest > 0
        with await turn(order) as leave:
            leave.answered()

        assert order.states() == [BreakerState.CLOSED]

    async def test_a_rest_that_is_too_long_is_told_at_once(self) -> None:
        order = endpoints(policy=LONG)
        await down(order, 0)

        with pytest.raises(RestingError) as error:
            await turn(order, within=20)

        assert 20 < error.value.seconds <= 100

    async def test_a_server_s_wish_is_kept(self) -> None:
        order = endpoints()
        with await turn(order) as leave:
            leave.failed(30)

        assert 29 < order.rest <= 30

    async def test_others_wait_for_the_probe_in_the_order_they_came(self) -> None:
        order, asked = endpoints(policy=BreakerPolicy(2, 0.05, 20)), []
        await down(order, 0)
        probe = await turn(order)

        async def ask(number: int) -> None:
            with await turn(order) as leave:
                asked.append(number)
                leave.answered()

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(ask(number))
            await asyncio.sleep(0.1)
            assert asked == []
            probe.answered()

        assert asked == list(range(20))

    async def test_they_lend_their_places_and_go_on_as_they_find_some(self) -> None:
        places = Places(2, most_lent=20)
        order = endpoints(policy=BreakerPolicy(2, 0.05, 20), places=places)
        await down(order, 0)
        probe, at_work, most = await turn(order), 0, 0

        async def ask() -> None:
            nonlocal at_work, most
            places.take()
            with await turn(order) as leave:
                at_work += 1
                most = max(most, at_work)
                await asyncio.sleep(0)
                leave.answered()
                at_work -= 1
            places.give_back()

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(ask())
            await asyncio.sleep(0.1)
            assert (places.free, most) == (2, 0)
            probe.answered()

        assert most == 2
        assert places.free == 2

    async def test_a_probe_that_fails_goes_behind_the_others(self) -> None:
        """T-D17: no call spends all its attempts on an endpoint that is down."""
        order = endpoints()
        probes: list[int] = []
        await down(order, 0)

        async def ask(number: int) -> None:
            while len(probes) < 8:
                with await turn(order) as leave:
                    probes.append(number)
                    leave.failed()

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(ask(number))

        assert probes[:8] == [0, 1, 2, 3, 0, 1, 2, 3]

    async def test_a_probe_that_vanishes_lets_the_next_one_through(self) -> None:
        order = endpoints(policy=BreakerPolicy(2, 0.05, 20))
        await down(order, 0)
        with pytest.raises(KeyError), await turn(order):
            raise KeyError

        async with asyncio.timeout(5):
            with await turn(order) as leave:
                leave.answered()

    async def test_one_who_waits_in_line_is_told_when_time_is_up(self) -> None:
        order = endpoints(policy=BreakerPolicy(2, 0.05, 20))
        await down(order, 0)
        await turn(order)

        waiting = [order.turn([], deadline=_in(0.2)) for _ in range(3)]
        outcomes: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(isinstance(each, RestingError) for each in outcomes)

    async def test_waiting_takes_no_turns_of_the_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """T-D17: no busy loop, however many wait."""
        order, waking = endpoints(policy=BreakerPolicy(2, 1, 20)), 0
        await down(order, 0)
        check = order._check

        def counted(deadline: float) -> None:
            nonlocal waking
            waking += 1
            check(deadline)

        monkeypatch.setattr(order, "_check", counted)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn(order)) for _ in range(200)]
            await asyncio.sleep(0.3)
            for task in tasks:
                task.cancel()

        assert waking <= 2 * 200 + 10


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
