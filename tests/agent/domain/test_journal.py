from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from services.agent.domain import hints
from services.agent.domain.chat import Ending
from services.agent.domain.endings import INTERNAL
from services.agent.domain.journal import MAX_ERROR_BYTES, HintingJournal
from services.agent.domain.messages import Draft, Role
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import RunError, RunState, StopReason, Usage
from services.common.errors import ResourceExhaustedError
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import (
    ALICE,
    Stores,
    answer,
    asking,
    call,
    memory_stores,
    result_of,
)


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


class TestHintingJournal:
    async def test_every_write_is_made_fit_and_hinted_at(self, stores: Stores) -> None:
        run = await stores.started()
        notified = LocalHints()
        journal = HintingJournal(
            stores.queue.journal(await stores.claimed()),
            session_id=run.session_id,
            notifier=notified,
        )
        odd = call("a\0")

        await journal.set_state(RunState.THINKING)
        [kept] = (await journal.append_assistant(asking(odd), usage=Usage(1, 2))).tool_calls
        await journal.start_tool_calls([kept.id])
        await journal.append_tool_results([result_of(odd, "\0")], then=RunState.THINKING)
        closing = [answer("bye\0")]
        await journal.finish(Ending(RunState.FINISHED, StopReason.END_TURN), closing, steps=1)

        _, asked, found, last = await stores.said(run)
        assert [each.id for each in asked.tool_calls] == ["a\ufffd"]
        assert (found.tool_call_id, found.text) == ("a\ufffd", "\ufffd")
        assert last.text == "bye\ufffd"
        assert (notified.sent[run.session_id], notified.sent[hints.RUNS]) == (5, 1)
        ended = await stores.runs.get(ALICE, run.id)
        assert (2, Usage(1, 2)) == (ended.step_count, ended.usage)

    async def test_a_store_without_room_is_waited_for(self, stores: Stores) -> None:
        run = await stores.started()
        crowded = Crowded(stores.queue.journal(await stores.claimed()), refusals=2)
        hinted = HintingJournal(
            cast("RunJournal", crowded), session_id=run.session_id, notifier=LocalHints()
        )

        await hinted.set_state(RunState.THINKING)

        assert crowded.refusals == 0
        assert (await stores.runs.get(ALICE, run.id)).state is RunState.THINKING

    async def test_the_words_of_a_failure_are_bounded(self, stores: Stores) -> None:
        run = await stores.started()
        journal = HintingJournal(
            stores.queue.journal(await stores.claimed()),
            session_id=run.session_id,
            notifier=LocalHints(),
        )

        await journal.finish(replace(INTERNAL, error=RunError("INTERNAL", "x\0" * 10_000)))

        failed = await stores.runs.get(ALICE, run.id)
        assert failed.error is not None
        assert len(failed.error.message.encode()) <= MAX_ERROR_BYTES
        _, told = await stores.said(run)
        assert Draft(Role.SYSTEM, failed.error.message).text == told.text


class Crowded:
    """A journal whose store has no room at first."""

    def __init__(self, journal: RunJournal, *, refusals: int) -> None:
        self.refusals = refusals
        self._journal = journal

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def write(*given: object, **named: object) -> object:
            if self.refusals:
                self.refusals -= 1
                raise ResourceExhaustedError("All database connections are in use.")
            return await getattr(self._journal, name)(*given, **named)

        return write
