"""What every store's journal is wrapped in: drafts are made fit, and hints follow each write."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from services.agent.domain import hints
from services.agent.domain.chat import Ending
from services.agent.domain.drafts import cut, fit
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Offered, RunState, Usage
from services.common.hints import Notifier

MAX_ERROR_BYTES: Final = 4096


class HintingJournal:
    """A `RunJournal` that makes drafts fit, writes them to another and hints at each write."""

    def __init__(self, journal: RunJournal, *, session_id: SessionId, notifier: Notifier) -> None:
        self._journal = journal
        self._session_id = session_id
        self._notifier = notifier

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        await self._journal.set_state(state, offered=offered)
        self._notifier.notify(self._session_id)

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        message = await self._journal.append_assistant(fit(draft), usage=usage, starting=starting)
        self._notifier.notify(self._session_id)
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        await self._journal.start_tool_calls(call_ids)
        self._notifier.notify(self._session_id)

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        messages = await self._journal.append_tool_results([*map(fit, drafts)], then=then)
        self._notifier.notify(self._session_id)
        return messages

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        messages = await self._journal.finish(
            _fit_ending(ending), [fit(draft) for draft in closing], usage=usage, steps=steps
        )
        self._notifier.notify(self._session_id)
        self._notifier.notify(hints.RUNS)
        return messages


def _fit_ending(ending: Ending) -> Ending:
    if ending.error is None:
        return ending
    error = replace(ending.error, message=cut(ending.error.message, MAX_ERROR_BYTES))
    return replace(ending, error=error)
