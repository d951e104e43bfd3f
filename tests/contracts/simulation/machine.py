"""Random orders of all that can happen to runs: a Hypothesis state machine.

A step is one event: a message of a user's, a reply of a model's, a crash, half a minute. After each
step everything that is stored is held against what was promised; at the end all that is broken is
healed, and everything has to come to its end.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.agent.domain.approval_models import Decision
from services.agent.domain.errors import QueueFullError, RunInProgressError, RunNotFailedError
from services.agent.domain.models import RunId, RunLimits, SessionId, Window, WindowStrategy
from services.agent.domain.run_models import RunState, WhenBusy
from tests.contracts.simulation.answers import REPLIES, RESULTS, Answers
from tests.contracts.simulation.backends import Backend
from tests.contracts.simulation.process import CRASH_LIMIT, LEASE, POINTS, Process, Waiting
from tests.contracts.simulation.world import POLL, World

T = TypeVar("T")

LIMITS = (
    RunLimits(max_steps=3, max_tool_calls=6, max_duration=timedelta(minutes=2)),
    RunLimits(max_tokens=2000, max_duration=timedelta(hours=10)),
)
WINDOWS = (
    Window(),
    Window(strategy=WindowStrategy.COMPACTION, max_tokens=100, keep_messages=2),
)
PROCESSES = 2
WISHES = (*[WhenBusy.ENQUEUE] * 5, *WhenBusy, "again", "cancel", "cancel", "retry", "clear")
TROUBLES = {
    "leave": 4,
    "crash": 12,
    "crash loop": 3,
    "freeze or thaw": 12,
    "lose hints": 4,
    "jump of the database's clock": 10,
}
"""What can happen to processes, and how often beside a catch at each point."""

_ROUNDS_TO_DRAIN = 200

PICK = st.integers(0, 5)
WISHED = st.sampled_from([(wish, session) for wish in WISHES for session in (0, 1)])
TROUBLED = st.sampled_from(
    [
        *(("catch", point) for point in POINTS),
        *(("fail", point) for point in POINTS if not point.startswith("amid")),
        *((trouble, "") for trouble, times in TROUBLES.items() for _ in range(times)),
    ]
)


class AgentMachine(RuleBasedStateMachine):
    """The machine; a subclass says over which backend.

    Attributes:
        backend: the database.
        counts: how often what happened, in all examples together.
    """

    backend: ClassVar[Backend]
    counts: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.answers = Answers()
        self.world = World(self.backend, self.counts)
        self.sessions = [
            self.world.session(limits, window)
            for limits, window in zip(LIMITS, WINDOWS, strict=True)
        ]
        self.texts = 0
        self.world.hire()
        self.world.settle()

    @rule(wished=WISHED, pick=PICK)
    def wish(self, wished: tuple[str | WhenBusy, int], pick: int) -> None:
        wish, session = wished
        if isinstance(wish, WhenBusy) or not self._runs:
            when_busy = wish if isinstance(wish, WhenBusy) else WhenBusy.ENQUEUE
            return self._did(f"user: {self._say(self.sessions[session], when_busy)}")
        match wish:
            case "again":
                self._say_again(_nth(self._runs, pick))
            case "clear":
                self.world.clear(self.sessions[session])
            case "cancel":
                run = self.world.cancel(_nth(self._runs, pick))
                assert run.state.final or run.cancel_requested, "D9: a cancel without effect"
            case _:
                self._retry(_nth(self._in_state(RunState.ERROR) or self._runs, pick))
        return self._did(f"user: {wish}")

    @precondition(lambda self: self.world.pending)
    @rule(pick=PICK, decision=st.sampled_from(Decision))
    def decide(self, pick: int, decision: Decision) -> None:
        self.world.decide(_nth(self.world.pending, pick), decision)
        self._did(f"user: {decision.value}")

    @precondition(lambda self: self.world.questions)
    @rule(pick=PICK, reply=st.sampled_from(REPLIES))
    def reply(self, pick: int, reply: str) -> None:
        self._reply(_nth(self.world.questions, pick), reply)
        self._did(f"model: {reply}")

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK, result=st.sampled_from(RESULTS))
    def give(self, pick: int, result: str) -> None:
        self._give(_nth(self.world.jobs, pick), result)
        self._did(f"tool: {result}")

    @precondition(lambda self: self.world.questions or self.world.jobs)
    @rule(reply=st.sampled_from(REPLIES), rounds=st.integers(1, 6))
    def go_on(self, reply: str, rounds: int) -> None:
        for _ in range(rounds):
            self._all_go_on(reply)
        self._did(f"all models: {reply}")

    @rule(troubled=TROUBLED, pick=PICK)
    def disturb(self, troubled: tuple[str, str], pick: int) -> None:
        trouble, point = troubled
        self._disturb(trouble, _nth(self.world.processes, pick), point)
        self._did(f"process: {trouble}")

    @precondition(lambda self: self._working)
    @rule(pick=PICK, reply=st.sampled_from(REPLIES), rounds=st.integers(0, 2))
    def outlive_its_lease(self, pick: int, reply: str, rounds: int) -> None:
        """A process is frozen amid its work, others go on with it, and then it thaws."""
        process = _nth(self._working, pick)
        process.frozen = True
        self._staff()
        self.world.pass_time(LEASE + 1)
        for _ in range(rounds):
            self._all_go_on(reply, but=process)
        for question in process.questions:
            self._reply(question, reply)
        for job in process.jobs:
            self._give(job, "finds")
        self._freeze_or_thaw(process)
        self._did("process: outlive its lease")

    @precondition(lambda self: self.world.caught)
    @rule(pick=PICK)
    def let_go(self, pick: int) -> None:
        _let_go(_nth(self.world.caught, pick))
        self._did("process: let go")

    @precondition(lambda self: self._unfinished)
    @rule(seconds=st.sampled_from((POLL, LEASE + 1)))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self._did("time: a while" if seconds < LEASE else "time: past the lease")

    @invariant()
    def all_is_as_promised(self) -> None:
        self.broken = True
        self.world.check()
        self.broken = False

    def teardown(self) -> None:
        try:
            if not self.broken:
                self._drain()
        finally:
            self.world.close()

    def _drain(self) -> None:
        """Heal everything; then all has to come to its end."""
        self.world.hints.lost = False
        for process in self.world.processes:
            process.frozen = False
            process.catch_at.clear()
            process.fail_at.clear()
        for _ in range(_ROUNDS_TO_DRAIN):
            self._staff()
            self._let_everything_go_on()
            self.world.check()
            for approval in self.world.pending:
                self.world.decide(approval, Decision.APPROVE)
            if all(run.state.final for run in self.world.snapshot().runs.values()):
                break
            self.world.pass_time(POLL)
        self.world.check()
        self.world.check_drained()
        for process in list(self.world.processes):
            process.leave()
        self.world.pass_time(POLL)
        assert not self.world.processes, "I9: a process does not leave"
        self.world.noted("drained")

    def _all_go_on(self, reply: str, *, but: Process | None = None) -> None:
        for question in self.world.questions:
            if but is None or question not in but.questions:
                self._reply(question, reply)
        self.world.settle()
        for job in self.world.jobs:
            if but is None or job not in but.jobs:
                self._give(job, "finds")
        self.world.settle()

    def _say(self, session: SessionId, when_busy: WhenBusy) -> str:
        self.texts += 1
        text = f"question {self.texts}"
        try:
            run, _ = self.world.start(session, text, when_busy)
        except (RunInProgressError, QueueFullError) as refused:
            return refused.reason
        self.world.history.accepted[run.id] = text
        return when_busy.value

    def _say_again(self, run_id: RunId) -> None:
        run = self.world.history.last.runs[run_id]
        text = self.world.history.accepted[run_id]
        again, _ = self.world.start(run.session_id, text, WhenBusy.ENQUEUE)
        assert again.id == run_id, "D1: the same request made another run"

    def _retry(self, run_id: RunId) -> None:
        before = self.world.history.last.runs[run_id]
        try:
            run = self.world.retry(run_id)
        except RunNotFailedError:
            assert before.state in {RunState.FINISHED, RunState.CANCELLED}
        except QueueFullError:
            assert before.state is RunState.ERROR
        else:
            assert run.attempt == before.attempt + (before.state is RunState.ERROR)

    def _disturb(self, trouble: str, process: Process, point: str) -> None:
        match trouble:
            case "leave":
                process.leave()
            case "catch":
                process.catch_at.add(point)
            case "fail":
                process.fail_at.add(point)
            case "crash":
                self._crash(process)
            case "crash loop":
                self._crash_all(CRASH_LIMIT)
            case "freeze or thaw":
                self._freeze_or_thaw(process)
            case "jump of the database's clock":
                self.world.jump(LEASE + 1)
            case _:
                self.world.hints.lost = not self.world.hints.lost

    def _freeze_or_thaw(self, process: Process) -> None:
        frozen = sum(each.frozen for each in self.world.processes)
        process.frozen = not process.frozen and frozen < PROCESSES
        for each in () if process.frozen else process.caught:
            _let_go(each)

    def _crash_all(self, times: int) -> None:
        for _ in range(times):
            for process in list(self.world.processes):
                self._crash(process)
            self._staff()
            self.world.pass_time(LEASE + 1)

    def _crash(self, process: Process) -> None:
        for each in process.caught:
            self.world.noted(f"killed {each.what}")
        self.world.kill(process)

    def _let_everything_go_on(self) -> None:
        while self.world.caught or self.world.jobs or self.world.questions:
            for caught in self.world.caught:
                _let_go(caught)
            for job in self.world.jobs:
                self._give(job, "finds")
            for question in self.world.questions:
                self._reply(question, "says")
            self.world.settle()
        self.world.settle()

    def _did(self, what: str) -> None:
        self.counts[f"step: {what}"] += 1
        self.world.settle()
        self._staff()

    def _staff(self) -> None:
        """Have enough processes that run, as whatever watches over them would."""
        while sum(not each.frozen for each in self.world.processes) < PROCESSES:
            self.world.hire()
            self.world.settle()

    def _reply(self, question: Waiting, name: str) -> None:
        assert question.request is not None
        _resolve(question, self.answers.reply(name, question.request))

    def _give(self, job: Waiting, name: str) -> None:
        _resolve(job, self.answers.result(name))

    def _process(self, pick: int) -> Process:
        return _nth(self.world.processes, pick)

    @property
    def _runs(self) -> list[RunId]:
        return list(self.world.history.accepted)

    @property
    def _working(self) -> list[Process]:
        """Processes with work in hand that do not stand still."""
        return [
            each
            for each in self.world.processes
            if not each.frozen and (each.questions or each.jobs)
        ]

    @property
    def _unfinished(self) -> bool:
        return any(not run.state.final for run in self.world.history.last.runs.values())

    def _in_state(self, state: RunState) -> list[RunId]:
        runs = self.world.history.last.runs
        return [run_id for run_id in self._runs if runs[run_id].state is state]


def _nth(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


def _let_go(waiting: Waiting) -> None:
    if not waiting.future.done():
        waiting.future.set_result(None)


def _resolve(waiting: Waiting, answer: object) -> None:
    if waiting.future.done():
        return
    if isinstance(answer, asyncio.CancelledError):
        waiting.future.cancel()
    elif isinstance(answer, BaseException):
        waiting.future.set_exception(answer)
    else:
        waiting.future.set_result(answer)
