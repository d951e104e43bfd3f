"""The world of the simulation: processes, clients, a database and a clock by hand."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from uuid import NAMESPACE_OID, uuid5

from services.agent.domain.approval_models import Answer, Approval, ApprovalState, Decision
from services.agent.domain.approvals import Approvals
from services.agent.domain.chat import ModelRequest, ToolContext
from services.agent.domain.errors import ApprovalExpiredError
from services.agent.domain.messages import Message
from services.agent.domain.models import (
    AgentId,
    AgentSettings,
    RunId,
    RunLimits,
    SessionId,
    Window,
)
from services.agent.domain.run_models import Run, WhenBusy
from services.agent.domain.runs import Runs
from services.agent.domain.stores import RequestKey
from services.common.paging import Page
from tests.agent.conversation import is_summary
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE
from tests.contracts.simulation.backends import Backend, Snapshot
from tests.contracts.simulation.history import History, call_key
from tests.contracts.simulation.process import Process, Waiting

POLL = 10.0
BROKEN = "a promise broken"
EVERYTHING = Page(1000)


class World:
    """Everything; made, and closed in the end, by a test.

    Attributes:
        hints: reach all processes.
        clock: the wall clock, as the database has it.
        processes: that live, or stand still.
        history: what clients were promised.
        counts: how often what happened.
        faults: what must not have happened, in words.
    """

    def __init__(self, backend: Backend, counts: Counter[str]) -> None:
        self.hints = LocalHints(poll=POLL)
        self.clock = backend.clock
        self.processes: list[Process] = []
        self.history = History()
        self.counts = counts
        self.faults: list[str] = []
        backend.clear()
        self._backend = backend
        self._client = backend.host()
        stores = self._client.stores
        self._runs = Runs(stores.runs, sessions=stores.sessions, notifier=self.hints)
        self._approvals = Approvals(
            stores.approvals, runs=stores.runs, sessions=stores.sessions, notifier=self.hints
        )

    def session(self, limits: RunLimits, window: Window) -> SessionId:
        """A new session, with an agent of its own."""
        below = self._clerk(self._clerk())
        settings = AgentSettings(
            "Helper", tools=("look", "send"), limits=limits, agent_ids=(below,), window=window
        )
        session = self._client.loop.do(self._client.stores.session(ALICE, settings))
        self.history.limits[session.id] = limits
        return session.id

    def _clerk(self, *below: AgentId) -> AgentId:
        """An agent that others ask, and that may ask these."""
        settings = AgentSettings("Clerk", tools=("look", "send"), agent_ids=below)
        return self._client.loop.do(self._client.stores.agents.create(ALICE, settings)).id

    def start(self, session_id: SessionId, text: str, when_busy: WhenBusy) -> tuple[Run, Message]:
        """Accept a message; the same text is the same request."""
        request = RequestKey(str(uuid5(NAMESPACE_OID, text)), sha256(text.encode()).digest())
        return self._client.loop.do(
            self._runs.start(ALICE, session_id, text, when_busy=when_busy, request=request)
        )

    def cancel(self, run_id: RunId) -> Run:
        """Ask a run to stop."""
        return self._client.loop.do(self._runs.cancel(ALICE, run_id))

    def retry(self, run_id: RunId) -> Run:
        """Put a run that failed back in line."""
        return self._client.loop.do(self._runs.retry(ALICE, run_id))

    def clear(self, session_id: SessionId) -> None:
        """Forget what was said in a session."""
        self._client.loop.do(self._client.stores.memories.clear(ALICE, session_id))

    def decide(self, approval: Approval, decision: Decision) -> None:
        """Answer a question, unless it has lapsed meanwhile."""
        self.history.answers.setdefault(call_key(approval), decision)
        answer = Answer(decision, approval.question.digest)
        try:
            self._client.loop.do(self._approvals.resolve(ALICE, approval.id, answer))
        except ApprovalExpiredError:
            self.noted("answered too late")

    @property
    def pending(self) -> list[Approval]:
        """Questions that wait for an answer, as things stood when they were last looked at."""
        asked = self.history.last.approvals
        return [each for each in asked if each.state is ApprovalState.PENDING]

    def snapshot(self) -> Snapshot:
        """All that is stored."""
        return self._backend.snapshot()

    def check(self) -> None:
        """Hold what is stored against what was promised."""
        with self._broken_noted():
            self.history.check(self.snapshot())
            assert not self.faults, self.faults[0]

    def check_drained(self) -> None:
        """After healing: everything has ended, with a word to a person and a whole record."""
        found = self.snapshot()
        calls = {
            run_id: self._client.loop.do(self._runs.tool_calls(ALICE, run_id, EVERYTHING)).items
            for run_id in found.runs
        }
        with self._broken_noted():
            self.history.check_drained(found, calls)
        for approval in found.approvals:
            self.noted(f"approval {approval.state.value}")
        for run in found.runs.values():
            assert run.stop_reason is not None
            self.noted(f"ended {run.stop_reason.value}")

    @contextmanager
    def _broken_noted(self) -> Iterator[None]:
        try:
            yield
        except AssertionError:
            self.noted(BROKEN)
            raise

    def settle(self) -> None:
        """Let all processes do what they can do at this moment."""
        while any(process.settle() for process in self.processes):
            pass
        for process in [each for each in self.processes if each.gone]:
            self._clear_up(process)

    def pass_time(self, seconds: float) -> None:
        """Let time go by, from one thing that is due to the next."""
        until = self._backend.now + seconds
        while (now := self._backend.now) < until:
            timers = [each.loop.next_timer for each in self.processes if not each.frozen]
            due = [timer for timer in timers if timer is not None and timer > now]
            self._backend.pass_time(min([*due, until]) - now)
            self.settle()

    def jump(self, seconds: float) -> None:
        """Let leases lapse early, while those who hold them do not know."""
        self._backend.jump(seconds)

    def hire(self) -> Process:
        """A new process."""
        process = Process(self, self._backend.host())
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """End a process without a word."""
        process.crash()
        self._clear_up(process)

    @property
    def questions(self) -> list[Waiting]:
        """Models that are asked."""
        return [each for process in self.processes for each in process.questions if _open(each)]

    @property
    def jobs(self) -> list[Waiting]:
        """Tools that run."""
        return [each for process in self.processes for each in process.jobs if _open(each)]

    @property
    def caught(self) -> list[Waiting]:
        """Database operations that are held."""
        return [each for process in self.processes for each in process.caught if _open(each)]

    def close(self) -> None:
        """Clear up."""
        for process in list(self.processes):
            self.kill(process)
        self._backend.release(self._client)

    def _clear_up(self, process: Process) -> None:
        process.check_end()
        self.processes.remove(process)
        self._backend.release(process.host)

    def noted(self, what: str) -> None:
        """Something happened that is worth counting."""
        self.counts[what] += 1

    def asked(self, request: ModelRequest) -> None:
        """A model is asked."""
        if is_summary(request):
            self.noted("asked for a summary")
            self._hold(lambda: self.history.asked_for_summary(request))
        else:
            self.noted("asked")
            self._hold(lambda: self.history.asked(request))

    def begun(self, tool: str, context: ToolContext) -> None:
        """A tool begins to have its effect."""
        self.noted(f"begun {tool}")
        self._hold(lambda: self.history.begun(tool, context.call_key, once=tool == "send"))

    def _hold(self, check: Callable[[], None]) -> None:
        """Keep what is wrong for later, as a worker would take it for a fault of its own."""
        try:
            check()
        except AssertionError as fault:
            self.faults.append(str(fault))


def _open(waiting: Waiting) -> bool:
    return not waiting.future.done()
