"""Rows that other releases wrote."""

from services.agent.domain.chat import Ending
from services.agent.domain.run_models import RunState, StopReason
from services.common.db import connection
from services.common.paging import Page
from tests.contracts.agent_stores import ALICE, agent_pool, postgres_stores


class TestRun:
    async def test_an_end_that_only_a_later_release_knows_is_an_end(
        self, empty_tables: str
    ) -> None:
        async with agent_pool(empty_tables) as pool:
            stores = postgres_stores(pool)
            run = await stores.started()
            journal = stores.queue.journal(await stores.claimed())
            await journal.finish(Ending(RunState.FINISHED, StopReason.END_TURN))
            async with connection(pool) as lent:
                await lent.execute("UPDATE run SET stop_reason = 'handed_over'")

            [read] = await stores.runs.list(ALICE, run.session_id, Page(10))

        assert (read.state, read.stop_reason) == (RunState.FINISHED, None)
