"""Every store keeps what was cut of results, for the run that it belongs to."""

from dataclasses import replace

import pytest

from services.agent.domain.drafts import MAX_TEXT_BYTES
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Whole
from services.agent.domain.models import RunId
from services.agent.domain.run_models import Usage
from services.common.ids import new_id
from tests.contracts.agent_stores import ALICE, AT_ONCE, Stores, asking, call, result_of

WHOLE = Whole("all of it, Ünïcode", 300_000, "https://example.org/")


class TestWholes:
    async def test_a_whole_is_kept_beside_its_result(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a"), call("b"), call("c")), usage=Usage())

        first, second, _ = await journal.append_tool_results(
            [result_of(call("a")), replace(result_of(call("b")), whole=WHOLE), result_of(call("c"))]
        )

        assert await stores.wholes.whole(run.id, 1, 1) == WHOLE
        assert await stores.wholes.whole(run.id, 1, 0) is None
        assert await stores.wholes.whole(run.id, 1, 7) is None
        assert await stores.wholes.whole(run.id, 2, 1) is None
        assert await stores.wholes.whole(RunId(new_id()), 1, 1) is None
        assert (first.whole, second.whole) == (None, None)
        assert [message.whole for message in await stores.said(run)] == [None] * 5

    async def test_it_is_there_for_whoever_takes_the_run_over(self, stores: Stores) -> None:
        run = await stores.started()
        first = stores.queue.journal(await stores.claimed(lease=AT_ONCE))
        await first.append_assistant(asking(call("a")), usage=Usage())
        await first.append_tool_results([replace(result_of(call("a")), whole=WHOLE)])

        second = stores.queue.journal(await stores.claimed())
        await second.append_assistant(asking(call("d")), usage=Usage())

        assert await stores.wholes.whole(run.id, 1, 0) == WHOLE

    async def test_whoever_lost_the_run_keeps_nothing(self, stores: Stores) -> None:
        run = await stores.started()
        lost = stores.queue.journal(await stores.claimed(lease=AT_ONCE))
        await lost.append_assistant(asking(call("a")), usage=Usage())
        await stores.claimed()

        with pytest.raises(FencedError):
            await lost.append_tool_results([replace(result_of(call("a")), whole=WHOLE)])

        assert await stores.wholes.whole(run.id, 1, 0) is None

    async def test_as_much_as_is_permitted_is_kept(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())
        most = Whole("ü" * (MAX_TEXT_BYTES // 2), 2**40, "s" * 4096)

        await journal.append_tool_results([replace(result_of(call("a")), whole=most)])

        assert await stores.wholes.whole(run.id, 1, 0) == most

    async def test_it_goes_with_its_session(self, stores: Stores) -> None:
        run = await stores.started()
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())
        await journal.append_tool_results([replace(result_of(call("a")), whole=WHOLE)])

        await stores.sessions.delete(ALICE, run.session_id)

        assert await stores.wholes.whole(run.id, 1, 0) is None
