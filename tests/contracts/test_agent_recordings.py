"""Every store keeps what a run needs to be driven anew."""

from dataclasses import replace

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import INTERNAL
from services.agent.domain.models import AgentSettings, Window
from services.agent.domain.run_models import Run, RunState, StopReason, WhenBusy
from services.common.errors import NotFoundError
from services.common.ids import new_id
from tests.contracts.agent_stores import ALICE, BOB, STRANGER, Stores, answer

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)


async def ended(stores: Stores, session_id: object, text: str) -> Run:
    """A run of a session that has been answered."""
    run, _ = await stores.runs.start(ALICE, session_id, text)  # type: ignore[arg-type]
    claim = await stores.claimed()
    await stores.queue.context(claim)
    await stores.queue.journal(claim).finish(ENDED, [answer(f"{text}!")])
    return await stores.runs.get(ALICE, run.id)


async def test_a_run_its_agent_and_what_was_said_before_are_kept(stores: Stores) -> None:
    settings = AgentSettings("Agent", window=Window(max_messages=3))
    session = await stores.session(settings=settings)
    for text in ("a", "b"):
        await ended(stores, session.id, text)
    run = await ended(stores, session.id, "c")
    await ended(stores, session.id, "d")
    await stores.agents.update(
        ALICE, session.agent_id, lambda kept: replace(kept, system_prompt="Changed.")
    )

    recording = await stores.recordings.get(ALICE, run.id)

    assert recording.run == run
    assert recording.agent is not None
    assert (session.agent_id, settings) == (recording.agent.id, recording.agent.settings)
    assert [each.text for each in recording.history] == ["a!", "b", "b!"]
    assert [each.text for each in recording.messages] == ["c", "c!"]


async def test_what_was_forgotten_before_is_no_part_of_it(stores: Stores) -> None:
    session = await stores.session()
    await ended(stores, session.id, "a")
    await stores.memories.clear(ALICE, session.id)
    await ended(stores, session.id, "b")
    run = await ended(stores, session.id, "c")

    recording = await stores.recordings.get(ALICE, run.id)

    assert [each.text for each in recording.history] == ["b", "b!"]


async def test_the_agent_is_known_after_it_was_deleted(stores: Stores) -> None:
    session = await stores.session()
    run = await ended(stores, session.id, "a")
    await stores.agents.delete(ALICE, session.agent_id)

    recording = await stores.recordings.get(ALICE, run.id)

    assert recording.agent is not None
    assert (session.agent_id, "alice") == (recording.agent.id, recording.agent.owner_user_id)


async def test_a_run_that_was_never_taken_has_no_agent(stores: Stores) -> None:
    run = await stores.started("Hello")

    recording = await stores.recordings.get(ALICE, run.id)

    assert (recording.agent, [each.text for each in recording.messages]) == (None, ["Hello"])


async def test_a_notice_that_was_discarded_is_left_out_and_a_discarded_run_is_not(
    stores: Stores,
) -> None:
    session = await stores.session()
    failed, _ = await stores.runs.start(ALICE, session.id, "a")
    await stores.queue.journal(await stores.claimed()).finish(INTERNAL)
    await stores.runs.retry(ALICE, failed.id)
    await stores.runs.start(ALICE, session.id, "b", when_busy=WhenBusy.ROLLBACK)

    rolled_back = await stores.recordings.get(ALICE, failed.id)

    texts = [each.text for each in rolled_back.messages]
    assert (rolled_back.run.discarded, texts[0]) == (True, "a")
    assert len(texts) == 3


@pytest.mark.parametrize("other", [BOB, STRANGER])
async def test_nobody_else_sees_it(stores: Stores, other: object) -> None:
    run = await stores.started()

    for identity, run_id in ((other, run.id), (ALICE, new_id())):
        with pytest.raises(NotFoundError) as raised:
            await stores.recordings.get(identity, run_id)  # type: ignore[arg-type]
        assert raised.value.message == f"No run {run_id}."
