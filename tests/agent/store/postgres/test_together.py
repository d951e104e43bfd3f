import asyncio
from collections.abc import Sequence

import pytest

from services.agent.store.postgres.together import Together


class Bus:
    """Carries what is called together, once it is let go; odd numbers have to go alone."""

    def __init__(self) -> None:
        self.carried: list[list[int]] = []
        self.go = asyncio.Event()
        self.error: BaseException | None = None

    async def make(self, items: Sequence[int]) -> Sequence[str | None]:
        self.carried.append(list(items))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [None if item % 2 else f"made {item}" for item in items]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def together(bus: Bus) -> Together[int, str]:
    return Together("test", bus.make)


async def settle() -> None:
    """Let everybody go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


class TestTogether:
    async def test_a_single_call_does_not_wait_and_those_meanwhile_go_together(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        async with together.open():
            calls = [asyncio.ensure_future(together.call(0))]
            await settle()
            calls += [asyncio.ensure_future(together.call(item)) for item in (2, 3, 4)]
            await settle()
            waiting = list(bus.carried)
            bus.go.set()
            results = await asyncio.gather(*calls)

        assert waiting == [[0]]
        assert bus.carried == [[0], [2, 3, 4]]
        assert results == ["made 0", "made 2", None, "made 4"]

    async def test_no_more_go_together_than_fit(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        bus.go.set()
        async with together.open():
            results = await asyncio.gather(*(together.call(2 * n) for n in range(150)))

        assert [len(each) for each in bus.carried] == [64, 64, 22]
        assert [f"made {2 * n}" for n in range(150)] == results

    async def test_how_many_go_together_may_be_told(self, bus: Bus) -> None:
        together = Together("test", bus.make, most=2)
        bus.go.set()
        async with together.open():
            await asyncio.gather(*(together.call(2 * n) for n in range(3)))

        assert bus.carried == [[0, 2], [4]]

    async def test_an_error_is_told_to_all_it_concerns_and_to_no_other(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        bus.error = ConnectionError("gone")
        bus.go.set()
        async with together.open():
            failed = await asyncio.gather(
                together.call(2), together.call(4), return_exceptions=True
            )
            bus.error = None
            after = await together.call(6)

        assert [ConnectionError] * 2 == [type(each) for each in failed]
        assert after == "made 6"

    async def test_who_leaves_while_waiting_is_left_out(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        async with together.open():
            first = asyncio.ensure_future(together.call(0))
            await settle()
            leaving, staying = (asyncio.ensure_future(together.call(item)) for item in (2, 4))
            await settle()
            leaving.cancel()
            bus.go.set()
            await asyncio.gather(first, staying)

        assert bus.carried == [[0], [4]]
        assert leaving.cancelled()

    async def test_who_leaves_amid_a_call_spoils_it_for_no_other(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        async with together.open():
            first, second = (asyncio.ensure_future(together.call(item)) for item in (0, 2))
            await settle()
            first.cancel()
            bus.go.set()

            assert await second == "made 2"

    async def test_outside_of_the_block_every_call_goes_alone(
        self, together: Together[int, str], bus: Bus
    ) -> None:
        assert await together.call(2) is None
        async with together.open():
            late = [asyncio.ensure_future(together.call(item)) for item in (2, 4)]
            await settle()
            late.append(asyncio.ensure_future(together.call(6)))
            await settle()

        assert await asyncio.gather(*late) == [None, None, None]
        assert await together.call(8) is None
