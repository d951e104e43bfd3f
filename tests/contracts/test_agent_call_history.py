"""Every implementation counts what the runs of a session have called in the same way."""

from services.agent.domain.chat import Ending
from services.agent.domain.hooks.hook import CallCounts
from services.agent.domain.run_models import RunState, StopReason, Usage
from tests.contracts.agent_stores import ALICE, Stores, answer, asking, call, result_of

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)


async def worked(stores: Stores, *names: str) -> None:
    """Take the next run, call these tools in one step, and end it."""
    claim = await stores.claimed()
    journal = stores.queue.journal(claim)
    asked = [call(f"c{place}", name) for place, name in enumerate(names)]
    await journal.append_assistant(asking(*asked), usage=Usage())
    await journal.append_tool_results([result_of(each) for each in asked])
    await journal.finish(ENDED, [answer()], steps=1)


async def test_the_other_runs_of_the_session_are_counted(stores: Stores) -> None:
    session = await stores.session()
    other = await stores.started()
    for _ in range(3):
        await stores.runs.start(ALICE, session.id, "Hello")
    for names in (["send"] * 7, ["look", "look", "send"], ["look"]):
        await worked(stores, *names)
    last = await stores.claimed()

    counts = await stores.calls.calls_of_others(session.id, last.run.id)

    assert other.session_id != session.id
    assert CallCounts(4, {"look": 3, "send": 1}) == counts


async def test_a_first_run_has_no_others(stores: Stores) -> None:
    run = await stores.started()

    assert CallCounts() == await stores.calls.calls_of_others(run.session_id, run.id)
