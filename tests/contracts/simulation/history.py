"""What must hold of all that is stored, whatever happened: I1 to I9."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.agent.domain.approval_models import Approval, Decision
from services.agent.domain.chat import ModelRequest
from services.agent.domain.ledger import ToolCallRecord, ToolCallState, idempotency_key
from services.agent.domain.messages import Message, Role
from services.agent.domain.models import RunId, RunLimits, SessionId
from services.agent.domain.run_models import Run, RunState, Usage
from tests.contracts.simulation.answers import TASK
from tests.contracts.simulation.backends import Snapshot

OPEN = {ToolCallState.PLANNED, ToolCallState.STARTED}


@dataclass
class History:
    """What was promised to clients so far, and what was stored when they last looked.

    Attributes:
        accepted: the text of each message that was accepted, by its run.
        limits: of each session's runs.
        effects: how often each call of each tool has had its effect.
        answers: what was said to questions about calls, by the key of the call.
        last: what was stored.
    """

    accepted: dict[RunId, str] = field(default_factory=dict)
    limits: dict[SessionId, RunLimits] = field(default_factory=dict)
    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: dict[str, Decision] = field(default_factory=dict)
    last: Snapshot = field(default_factory=lambda: Snapshot({}, {}))
    _said: dict[RunId, int] = field(default_factory=dict)

    def check(self, found: Snapshot) -> None:
        """Hold what is stored against what was promised."""
        self._accepted_once(found)
        for session, said in found.messages.items():
            _numbered(said)
            _goes_on(self.last.messages.get(session, ()), said)
        by_run = _by_run(found)
        for run in found.runs.values():
            before, said = self.last.runs.get(run.id), by_run[run.id]
            said_before, self._said[run.id] = self._said.get(run.id, 0), len(said)
            if before is not None and before.attempt == run.attempt:
                _stays_ended(before, run, said[said_before:])
                _stops(before, run, said[said_before:])
            if before is not run:
                _answers_calls(run, said)
                self._within_limits(run)
            if run.state.final and run.discarded:
                assert all(message.discarded for message in said), "D11: rolled back, yet shown"
        _one_at_a_time(found)
        _with_their_callers(found)
        self.last = found

    def check_drained(
        self, found: Snapshot, calls: Mapping[RunId, Sequence[ToolCallRecord]]
    ) -> None:
        """After healing: everything has ended, with a word to a person and a whole record."""
        by_run = _by_run(found)
        for run in found.runs.values():
            assert run.state.final, f"I9: {run.id} is stuck in {run.state}"
            said = by_run[run.id]
            assert said[-1].role in {Role.ASSISTANT, Role.SYSTEM}, "D10: no last word"
            assert said[-1].text, "D10: an empty last word"
            assert not said[-1].tool_calls, "I5: a call at the end"
            _recorded(said, calls[run.id])
            used = sum((sub.usage for sub in _subs_of(run, found)), Usage())
            assert run.sub_usage == used, "I8: what sub-agents used is told otherwise"

    def begun(self, tool: str, key: str, *, once: bool) -> None:
        """A tool has its effect."""
        self.effects[tool, key] += 1
        assert not once or self.effects[tool, key] == 1, f"I6: {key} has its effect again"
        asked = {call_key(each) for each in self.last.approvals}
        if key in asked:
            assert self.answers.get(key) is Decision.APPROVE, f"X7: {key} was not approved"

    def asked(self, request: ModelRequest) -> None:
        """A model is asked."""
        _paired(request)
        texts = [message.text for message in request.messages if message.role is Role.USER]
        known = texts[-1] in self.accepted.values() or texts[-1].startswith(TASK)
        assert known, "I1: a question that nobody asked"
        assert not self._discarded & set(texts[:-1]), "D11: rolled back, yet shown"

    def asked_for_summary(self, request: ModelRequest) -> None:
        """A model is asked to summarise a part of a session."""
        told = request.messages[-1].text.splitlines()
        questions = {line.removeprefix("[user] ") for line in told if line.startswith("[user] ")}
        assert not self._discarded & questions, "D11: rolled back, yet summarised"
        assert questions <= set(self.accepted.values()), "D12: what nobody asked is summarised"

    @property
    def _discarded(self) -> set[str]:
        """The questions of runs that were rolled back."""
        return {
            self.accepted[run.id]
            for run in self.last.runs.values()
            if run.discarded and run.state.final and run.id in self.accepted
        }

    def _accepted_once(self, found: Snapshot) -> None:
        questions = [
            message
            for said in found.messages.values()
            for message in said
            if message.role is Role.USER and found.runs[message.run_id].parent is None
        ]
        texts = Counter(message.text for message in questions)
        assert texts == Counter(self.accepted.values()), "I1: not each accepted message is there"
        for message in questions:
            run = found.runs[message.run_id]
            assert (run.message_id, run.turn) == (message.id, message.sequence), "I1: another run"
            assert self.accepted.get(run.id) == message.text, "I1: another run"

    def _within_limits(self, run: Run) -> None:
        limits = run.bounds(self.limits.get(run.session_id, RunLimits()))
        assert run.step_count <= limits.steps + run.attempt, "D10: too many steps"
        if limits.max_tokens is not None:
            assert run.usage.total <= limits.max_tokens, "I8: too many tokens"


def call_key(approval: Approval) -> str:
    """The idempotency key of the call that it is about."""
    return idempotency_key(approval.run_id, approval.step, approval.question.tool_call_id)


def _by_run(found: Snapshot) -> Mapping[RunId, list[Message]]:
    by_run = defaultdict[RunId, list[Message]](list)
    for said in found.messages.values():
        for message in said:
            by_run[message.run_id].append(message)
    return by_run


def _numbered(said: Sequence[Message]) -> None:
    numbers = [message.sequence for message in said]
    assert numbers == list(range(1, len(said) + 1)), f"I2: {numbers}"


def _goes_on(before: Sequence[Message], after: Sequence[Message]) -> None:
    assert len(after) >= len(before), "I3: a message is gone"
    for old, new in zip(before, after, strict=False):
        if old is not new:
            assert new.discarded or not old.discarded, "I3: a message came back"
            assert replace(old, discarded=new.discarded) == new, "I3: a message changed"


def _stays_ended(before: Run, run: Run, new: Sequence[Message]) -> None:
    if before.state.final:
        # The run of a sub-agent is rolled back with the one that asked, be it after its own end.
        rolled_back = run.parent is not None and run.discarded
        kept = replace(before, discarded=True) if rolled_back else before
        assert run == kept, "I4: an end changed"
        assert not new, "I4: a message after the end"
    assert run.state.final == (run.stop_reason is not None) == (run.end_time is not None)


def _stops(before: Run, run: Run, new: Sequence[Message]) -> None:
    if before.cancel_reason is None:
        return
    if run.state.final:
        assert run.state is RunState.CANCELLED, f"D9: asked to stop, ended {run.state}"
        assert run.stop_reason is before.cancel_reason, "D9: ended for another reason"
    else:
        assert not new, "D9: a message after it was asked to stop"
    assert all(message.role is not Role.ASSISTANT for message in new), "D9: it went on"


def _answers_calls(run: Run, said: Sequence[Message]) -> None:
    asked = [call.id for message in said for call in message.tool_calls]
    answered = [message.tool_call_id for message in said if message.role is Role.TOOL]
    assert len(set(asked)) == len(asked), "I5: a call's id came twice"
    assert len(set(answered)) == len(answered), f"I5: a call has two results: {answered}"
    assert set(answered) <= set(asked), "I5: a result of no call"
    if run.state.final:
        assert answered == asked, f"I5: {asked} answered by {answered}"


def _recorded(said: Sequence[Message], calls: Sequence[ToolCallRecord]) -> None:
    asked = [call.id for message in said for call in message.tool_calls]
    assert [call.tool_call_id for call in calls] == asked, "D7: not each call is on record"
    done = {
        message.tool_call_id
        for message in said
        if message.role is Role.TOOL and "error" not in message.metadata
    }
    for call in calls:
        assert call.state not in OPEN, "D7: a call stays open"
        assert (call.state is ToolCallState.DONE) == (call.tool_call_id in done), "D7: another end"


def _one_at_a_time(found: Snapshot) -> None:
    busy = Counter(
        run.session_id
        for run in found.runs.values()
        if run.state is not RunState.IDLE and not run.state.final
    )
    assert all(count == 1 for count in busy.values()), "I7: two runs of a session at once"


def _subs_of(run: Run, found: Snapshot) -> Iterator[Run]:
    for each in found.runs.values():
        if each.parent is not None and each.parent.run_id == run.id:
            yield each


def _with_their_callers(found: Snapshot) -> None:
    calls = Counter[tuple[RunId, str]]()
    for run in found.runs.values():
        if run.parent is None:
            continue
        calls[run.parent.run_id, run.parent.call_key] += 1
        caller = found.runs[run.parent.run_id]
        assert (run.tenant, run.user_id) == (caller.tenant, caller.user_id), "X: for somebody else"
        assert run.state.final or not caller.state.final, "D9: it goes on without its caller"
        along = run.discarded or not (caller.discarded and caller.state.final)
        assert along, "D11: its caller is rolled back alone"
        questions = [each for each in found.messages[run.session_id] if each.role is Role.USER]
        assert len(questions) == 1, "I1: a sub-agent is asked twice"
    assert all(count == 1 for count in calls.values()), "I6: a call has two runs"


def _paired(request: ModelRequest) -> None:
    """D8: every call is followed by its one result, in order."""
    expected: list[str] = []
    for message in request.messages:
        if message.role is Role.TOOL:
            assert expected, "D8: a result of no call"
            assert message.tool_call_id == expected.pop(0), "D8: results out of order"
        else:
            assert not expected, f"D8: {expected} not answered"
            expected = [call.id for call in message.tool_calls]
    assert not expected, f"D8: {expected} not answered"
