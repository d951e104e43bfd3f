"""What the worker that holds a run in memory writes."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, outcome_of
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.store.memory.database import Held, MemoryDatabase
from services.agent.store.memory.ends import OPEN, end_run, record


class MemoryRunJournal:
    """`RunJournal` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase, claim: Claim) -> None:
        self._db = database
        self._claim = claim

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        held = self._working()
        held.run = replace(held.run, state=state, offered=offered or held.run.offered)

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        held = self._working()
        held.run = replace(
            held.run,
            state=RunState.EXECUTING,
            step_count=held.run.step_count + 1,
            usage=held.run.usage + usage,
        )
        [message] = self._db.append(held.run, [draft])
        held.calls += _planned(held, message)
        for call in self._calls(held):
            if call.place in starting:
                _start(held, call, message.create_time)
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        held = self._working()
        held.run = replace(held.run, state=RunState.EXECUTING)
        for call in self._calls(held):
            if call.tool_call_id in call_ids and call.state in OPEN:
                _start(held, call, self._db.clock())

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        held = self._working()
        held.run = replace(held.run, state=then or held.run.state)
        messages = self._db.append(held.run, drafts)
        results = {message.tool_call_id: message for message in messages}
        for call in self._calls(held):
            result = results.get(call.tool_call_id)
            if result is not None:
                state, error = outcome_of(result)
                record(held, replace(call, state=state, error=error, end_time=result.create_time))
        return messages

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        held = held_by(self._db, self._claim)
        if held.run.cancel_reason not in {None, ending.stop_reason}:
            raise FencedError
        return end_run(self._db, held, ending, closing, usage=usage, steps=steps)

    def _working(self) -> Held:
        """The run, still held and not asked to stop."""
        held = held_by(self._db, self._claim)
        if held.run.cancel_requested:
            raise FencedError
        return held

    def _calls(self, held: Held) -> list[ToolCallRecord]:
        """The calls of the last assistant message."""
        return [call for call in held.calls if call.step == held.run.step_count]


def _start(held: Held, call: ToolCallRecord, moment: datetime) -> None:
    attempts = call.attempts + 1
    record(held, replace(call, state=ToolCallState.STARTED, attempts=attempts, start_time=moment))


def _planned(held: Held, message: Message) -> list[ToolCallRecord]:
    return [
        ToolCallRecord(
            run_id=held.run.id,
            step=message.step,
            place=place,
            tool_call_id=call.id,
            tool_name=call.name,
            state=ToolCallState.PLANNED,
            plan_time=message.create_time,
        )
        for place, call in enumerate(message.tool_calls)
    ]


def holds(held: Held, claim: Claim) -> bool:
    """Whether the claim is the one that holds the run."""
    return held.epoch == claim.epoch and held.lease_until is not None


def held_by(database: MemoryDatabase, claim: Claim) -> Held:
    """The run that the claim still holds; FencedError where it does not."""
    held = database.runs.get(claim.run.id)
    if held is None or not holds(held, claim):
        raise FencedError
    return held
