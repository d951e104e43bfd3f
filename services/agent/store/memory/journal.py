"""What the worker that holds a run in memory writes."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from services.agent.domain.approval_models import Approval, ApprovalId, ApprovalState, Question
from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, outcome_of
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Offered, Run, RunState, Usage
from services.agent.store.memory.database import MemoryDatabase, StoredRun
from services.agent.store.memory.ends import OPEN, end_run, record


class MemoryRunJournal:
    """`RunJournal` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase, claim: Claim) -> None:
        self._db = database
        self._claim = claim

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        stored = self._working()
        stored.run = replace(stored.run, state=state, offered=offered or stored.run.offered)

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        stored = self._working()
        stored.run = replace(
            stored.run,
            state=RunState.EXECUTING,
            step_count=stored.run.step_count + 1,
            usage=stored.run.usage + usage,
        )
        [message] = self._db.append(stored.run, [draft])
        stored.calls += _planned(stored, message)
        for call in self._calls(stored):
            if call.place in starting:
                _start(stored, call, message.create_time)
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        stored = self._working()
        stored.run = replace(stored.run, state=RunState.EXECUTING)
        for call in self._calls(stored):
            if call.tool_call_id in call_ids and call.state in OPEN:
                _start(stored, call, self._db.clock())

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        stored = self._working()
        stored.run = replace(stored.run, state=then or stored.run.state)
        self._db.count_subs(stored)
        messages = self._db.append(stored.run, drafts)
        results = {message.tool_call_id: message for message in messages}
        wholes = {draft.tool_call_id: draft.whole for draft in drafts if draft.whole}
        for call in self._calls(stored):
            result = results.get(call.tool_call_id)
            if result is not None:
                state, error = outcome_of(result)
                record(stored, replace(call, state=state, error=error, end_time=result.create_time))
            whole = wholes.get(call.tool_call_id)
            if whole is not None:
                stored.wholes[call.step, call.place] = whole
        return messages

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        stored, moment = self._working(), self._db.clock()
        calls = {call.tool_call_id: call for call in self._calls(stored)}
        asked = {each.question.tool_call_id: each for each in stored.approvals.values()}
        until = list[datetime]()
        for question in questions:
            call, before = calls[question.tool_call_id], asked.get(question.tool_call_id)
            if before is None:
                before = self._ask(stored.run, call, question, (moment, moment + within))
                stored.approvals[before.id] = before
            pending = before.state is ApprovalState.PENDING
            until.append(before.expire_time if pending else moment)
        stored.run = replace(stored.run, state=RunState.AWAITING_APPROVAL)
        stored.epoch, stored.park_time, stored.lease_until = stored.epoch + 1, moment, min(until)

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        stored = self._working()
        stored.run = replace(stored.run, usage=stored.run.usage + usage)
        return self._db.put_summary(stored.run.session_id, summary, revision=revision)

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        stored = held_by(self._db, self._claim)
        if stored.run.cancel_reason not in {None, ending.stop_reason}:
            raise FencedError
        return end_run(self._db, stored, ending, closing, usage=usage, steps=steps)

    def _ask(
        self, run: Run, call: ToolCallRecord, question: Question, times: tuple[datetime, datetime]
    ) -> Approval:
        return Approval(
            id=ApprovalId(self._db.new_id()),
            session_id=run.session_id,
            run_id=run.id,
            turn=run.turn,
            step=call.step,
            place=call.place,
            question=question,
            state=ApprovalState.PENDING,
            create_time=times[0],
            expire_time=times[1],
        )

    def _working(self) -> StoredRun:
        """The run, still held and not asked to stop."""
        stored = held_by(self._db, self._claim)
        if stored.run.cancel_requested:
            raise FencedError
        return stored

    def _calls(self, stored: StoredRun) -> list[ToolCallRecord]:
        """The calls of the last assistant message."""
        return [call for call in stored.calls if call.step == stored.run.step_count]


def _start(stored: StoredRun, call: ToolCallRecord, moment: datetime) -> None:
    attempts = call.attempts + 1
    record(stored, replace(call, state=ToolCallState.STARTED, attempts=attempts, start_time=moment))


def _planned(stored: StoredRun, message: Message) -> list[ToolCallRecord]:
    return [
        ToolCallRecord(
            run_id=stored.run.id,
            step=message.step,
            place=place,
            tool_call_id=call.id,
            tool_name=call.name,
            state=ToolCallState.PLANNED,
            plan_time=message.create_time,
        )
        for place, call in enumerate(message.tool_calls)
    ]


def holds(stored: StoredRun, claim: Claim) -> bool:
    """Whether the claim is the one that holds the run."""
    return stored.epoch == claim.epoch and stored.lease_until is not None


def held_by(database: MemoryDatabase, claim: Claim) -> StoredRun:
    """The run that the claim still holds; FencedError where it does not."""
    stored = database.runs.get(claim.run.id)
    if stored is None or not holds(stored, claim):
        raise FencedError
    return stored
