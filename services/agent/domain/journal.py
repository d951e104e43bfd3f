"""What every store's journal is wrapped in: fit drafts, patience, and a hint after each write."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

from services.agent.domain import hints
from services.agent.domain.approval_models import Question
from services.agent.domain.chat import Ending
from services.agent.domain.drafts import cut, fit
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Offered, RunState, Usage
from services.common.errors import ResourceExhaustedError
from services.common.hints import Notifier

MAX_ERROR_BYTES: Final = 4096

T = TypeVar("T")

_PAUSE = 0.1


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives, made again for as long as the store has no room for it yet.

    Nothing was done then, so that it can be repeated; whoever cannot wait so long cancels it.
    """
    while True:
        try:
            return await call()
        except ResourceExhaustedError:
            await asyncio.sleep(_PAUSE)


class HintingJournal:
    """A `RunJournal` that makes drafts fit, writes them to another and hints at each write.

    The methods are explained there.
    """

    def __init__(self, journal: RunJournal, *, session_id: SessionId, notifier: Notifier) -> None:
        self._journal = journal
        self._session_id = session_id
        self._notifier = notifier

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        await patiently(lambda: self._journal.set_state(state, offered=offered))
        self._notifier.notify(self._session_id)

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        fitting = fit(draft)
        message = await patiently(
            lambda: self._journal.append_assistant(fitting, usage=usage, starting=starting)
        )
        self._notifier.notify(self._session_id)
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        await patiently(lambda: self._journal.start_tool_calls(call_ids))
        self._notifier.notify(self._session_id)

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        fitting = [fit(draft) for draft in drafts]
        messages = await patiently(lambda: self._journal.append_tool_results(fitting, then=then))
        self._notifier.notify(self._session_id)
        return messages

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        await patiently(lambda: self._journal.park(questions, within=within))
        self._notifier.notify(self._session_id)

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        return await patiently(
            lambda: self._journal.remember(summary, revision=revision, usage=usage)
        )

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        end, fitting = _fit_ending(ending), [fit(draft) for draft in closing]
        messages = await patiently(
            lambda: self._journal.finish(end, fitting, usage=usage, steps=steps)
        )
        self._notifier.notify(self._session_id)
        self._notifier.notify(hints.RUNS)
        return messages


def _fit_ending(ending: Ending) -> Ending:
    if ending.error is None:
        return ending
    error = replace(ending.error, message=cut(ending.error.message, MAX_ERROR_BYTES))
    return replace(ending, error=error)
