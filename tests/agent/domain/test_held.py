import asyncio
from datetime import timedelta

from services.agent.domain.held import Held
from services.agent.domain.outcome import Outcome
from tests.contracts.agent_stores import memory_stores


async def held(seconds: float) -> Held:
    """A run whose lease lapses after so many seconds, by its holder's own clock."""
    stores = memory_stores()
    await stores.started()
    [claim] = await stores.queue.claim(lease=timedelta(seconds=30), most=1)
    until = asyncio.get_running_loop().time() + seconds
    return Held(claim, stores.queue.journal(claim), until)


class TestDecided:
    async def test_the_first_decision_holds(self) -> None:
        run = await held(30)

        run.decide(Outcome.CANCEL)
        run.decide(Outcome.DONE)

        assert Outcome.CANCEL is await run.decided()

    async def test_it_is_waited_for(self) -> None:
        run = await held(30)
        waiting = asyncio.ensure_future(run.decided())
        await asyncio.sleep(0)

        run.decide(Outcome.DONE)

        assert Outcome.DONE is await waiting

    async def test_it_is_lost_when_its_lease_lapses(self) -> None:
        run = await held(0.01)

        assert Outcome.LOST is await run.decided()
        assert run.lapsed

    async def test_a_lease_that_is_renewed_meanwhile_does_not_lapse(self) -> None:
        run = await held(0.01)
        waiting = asyncio.ensure_future(run.decided())
        await asyncio.sleep(0)
        run.until += 30
        await asyncio.sleep(0.02)

        assert not waiting.done()
        assert not run.lapsed
        run.decide(Outcome.DONE)
        assert Outcome.DONE is await waiting
