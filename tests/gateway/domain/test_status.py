"""How ChatMind is said to be."""

import asyncio

from services.gateway.domain.status import StatusBoard
from tests.gateway.domain.fixed import NOON, Clock


class Probe:
    """Asks something that is well or not."""

    def __init__(self, *, well: bool = True) -> None:
        self.well = well
        self.asked = 0

    async def check(self) -> None:
        """Return if it is well."""
        self.asked += 1
        await asyncio.sleep(0)
        if not self.well:
            raise ConnectionError("secret")


def board(hold_seconds: float = 0, **probes: Probe) -> StatusBoard:
    """A board over these."""
    return StatusBoard(
        probes, open_calls=lambda: {"calls": 7}, hold_seconds=hold_seconds, clock=Clock().now
    )


class TestStatusBoard:
    async def test_all_well_is_ready(self) -> None:
        status = await board(database=Probe(), agent=Probe()).status()

        assert status.ready
        assert status.components == {"database": True, "agent": True}
        assert (status.start_time, status.open_calls) == (NOON, {"calls": 7})

    async def test_one_that_is_not_well_is_named(self) -> None:
        status = await board(database=Probe(), agent=Probe(well=False)).status()

        assert not status.ready
        assert status.components == {"database": True, "agent": False}

    async def test_draining_is_not_ready(self) -> None:
        draining = board(database=Probe())
        draining.drain()

        assert not (await draining.status()).ready

    async def test_a_crowd_asks_once(self) -> None:
        probe = Probe()
        asked = board(hold_seconds=60, database=probe)

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(asked.status())

        assert probe.asked == 1
