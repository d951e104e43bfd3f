"""T-D1: runs keep their promises I1 to I9 whatever happens, in whatever order.

A Hypothesis state machine drives real workers, loops and stores: `simulation.machine` has what can
happen, `simulation.history` what must hold. A failure prints the shortest order of events that
leads to it. Faults are planted in the stores in memory, to show that the machine finds them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from structlog.testing import capture_logs

from services.agent.domain.approval_models import Approval, ApprovalState, Decision
from services.agent.domain.endings import last_messages
from services.agent.domain.errors import FencedError
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import StopReason
from services.agent.domain.turn.engine import Progress
from services.agent.store.memory import database, ends, journal
from services.agent.store.memory.database import MemoryDatabase, StoredRun
from services.agent.store.memory.queue import MemoryRunQueue
from tests.contracts.simulation.answers import REPLIES, RESULTS
from tests.contracts.simulation.backends import Backend, MemoryBackend, PostgresBackend
from tests.contracts.simulation.machine import TROUBLES, AgentMachine
from tests.contracts.simulation.process import OPERATIONS, WHEN
from tests.contracts.simulation.world import BROKEN

STEPS = 20_000
"""How many the machine makes at least, over the stores in memory."""

STEPS_OVER_POSTGRES = 1000
EXAMPLES = 440
MOST_ROUNDS = 10
"""How often so many examples are tried, until there were enough steps, of every kind."""

STEPS_PER_EXAMPLE = 50
SETTINGS = settings(
    derandomize=False,
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    print_blob=True,
)
REACHED = {
    StopReason.END_TURN,
    StopReason.MAX_STEPS,
    StopReason.MAX_TOKENS,
    StopReason.MAX_TOOL_CALLS,
    StopReason.MAX_DURATION,
    StopReason.REPEATED_CALL,
    StopReason.CANCELLED,
    StopReason.INTERRUPTED,
    StopReason.MODEL_ERROR,
    StopReason.CRASH_LOOP,
}
"""Ends that the machine must have seen."""

FENCED = ("append_assistant", "append_tool_results", "remember", "finish")
"""Operations that must have been refused to a process that lost its run."""


def simulate(backend: Backend, how: settings) -> Counter[str]:
    """How often what happened, in as many examples as `how` says.

    PostgreSQL answers many at once in an order of its own, so the same example may lead elsewhere
    when it is played again. The examples end there.
    """
    counts = Counter[str]()
    machine = type("AgentMachine", (AgentMachine,), {"backend": backend, "counts": counts})
    with capture_logs() as logs:
        try:
            run_state_machine_as_test(machine, settings=how)
        except FlakyStrategyDefinition:
            if isinstance(backend, MemoryBackend) or counts[BROKEN]:
                raise
    faults = {each["event"] for each in logs if each["log_level"] == "error"}
    assert faults <= {"tool failed"}
    return counts


def steps(counts: Counter[str]) -> int:
    """How many steps were made."""
    return sum(count for what, count in counts.items() if what.startswith("step: "))


def missing(counts: Counter[str]) -> list[str]:
    """What can happen and has not happened yet."""
    wanted = [
        ["drained"],
        ["asked for a summary"],
        *([f"step: user: {decision.value}"] for decision in Decision),
        *([f"approval {state}"] for state in ("approved", "denied", "expired", "cancelled")),
        *([f"ended {reason.value}"] for reason in REACHED),
        # Too few summaries are kept for a process to be caught there each time.
        *([f"caught {when} {name}" for when in WHEN] for name in OPERATIONS if name != "remember"),
        *([f"fenced {name}"] for name in FENCED),
        *([f"step: process: {name}"] for name in (*TROUBLES, "outlive its lease")),
        *([f"step: {who}: {name}" for who in ("model", "all models")] for name in REPLIES),
        *([f"step: tool: {name}"] for name in RESULTS),
    ]
    return [" or ".join(names) for names in wanted if not any(counts[name] for name in names)]


def told(counts: Counter[str]) -> str:
    """The counts, to be read."""
    lines = [f"{count:7,} {what}" for what, count in sorted(counts.items())]
    return "\n".join([f"{steps(counts):7,} steps in all", *lines])


@pytest.fixture
def memory() -> Iterator[MemoryBackend]:
    backend = MemoryBackend()
    yield backend
    backend.close()


class TestMemory:
    @pytest.mark.timeout(900)
    def test_promises_hold(self, memory: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
        counts = Counter[str]()
        for _ in range(MOST_ROUNDS):
            counts += simulate(memory, settings(SETTINGS, max_examples=EXAMPLES))
            if steps(counts) >= STEPS and not missing(counts):
                break

        with capsys.disabled():
            print(f"\nThe simulation over the stores in memory:\n{told(counts)}")  # noqa: T201
        assert missing(counts) == []
        assert steps(counts) >= STEPS


class TestPostgres:
    @pytest.mark.timeout(900)
    def test_promises_hold(self, agent_database: str, capsys: pytest.CaptureFixture[str]) -> None:
        backend, counts = PostgresBackend(agent_database), Counter[str]()
        try:
            for _ in range(MOST_ROUNDS):
                if steps(counts) < STEPS_OVER_POSTGRES:
                    counts += simulate(backend, settings(SETTINGS, max_examples=30))
        finally:
            backend.close()

        with capsys.disabled():
            print(f"\nThe simulation over PostgreSQL:\n{told(counts)}")  # noqa: T201
        assert steps(counts) >= STEPS_OVER_POSTGRES
        assert counts["drained"] >= 20
        assert counts["asked"] >= 100
        assert any(counts[f"fenced {name}"] for name in OPERATIONS)


def nobody_is_fenced_off(database: MemoryDatabase, claim: Claim) -> StoredRun:
    """The run, whoever holds it now."""
    stored = database.runs.get(claim.run.id)
    if stored is None or stored.run.state.final:
        raise FencedError
    return stored


def all_line_up(self: MemoryDatabase, session_id: SessionId) -> None:
    """All unfinished runs of a session at once."""
    for stored in self.unfinished(session_id):
        stored.place = stored.place or 0


async def not_noted(self: journal.MemoryRunJournal, call_ids: Sequence[ToolCallId]) -> None:
    """Nothing."""


def discard_it_alone(database: MemoryDatabase, stored: StoredRun) -> None:
    """What was said in a run, and nothing of its sub-agents."""
    database.discard(stored.run.session_id, lambda message: message.run_id == stored.run.id)


def silence_is_a_yes(approval: Approval, moment: datetime) -> Approval:
    """An approval, as if nobody had to answer."""
    lapsed = approval.state is ApprovalState.PENDING and approval.expire_time <= moment
    return replace(approval, state=ApprovalState.APPROVED) if lapsed else approval


FAULTS: dict[str, tuple[object, str, Any, str]] = {
    "the fence is off": (journal, "held_by", nobody_is_fenced_off, "I5|I2|D8"),
    "calls stay open": (
        ends,
        "last_messages",
        lambda calls, *more: last_messages((), *more),
        "I5|D8",
    ),
    "runs run side by side": (MemoryDatabase, "line_up", all_line_up, "I7"),
    "calls are not noted": (journal.MemoryRunJournal, "start_tool_calls", not_noted, "I6"),
    "lapsed leases stay": (MemoryRunQueue, "_lapsed", lambda _: iter(()), "I9"),
    "tokens are not bounded": (Progress, "affords", lambda *_: True, "I8"),
    "a call asks once more": (MemoryRunQueue, "_asked", lambda *_: None, "I6"),
    # What they use is not counted then either, or is after the end of their caller.
    "sub-agents go on alone": (ends, "_end_subs", lambda *_: None, "D9|I4|I8"),
    "sub-agents are not rolled back": (ends, "_discard", discard_it_alone, "D11"),
    "a no is a yes": (
        Decision,
        "state",
        property(lambda _: ApprovalState.APPROVED),
        "X7",
    ),
    "silence is a yes": (database, "_now", silence_is_a_yes, "X7"),
    "nobody stops": (
        journal.MemoryRunJournal,
        "_working",
        lambda self: journal.held_by(self._db, self._claim),
        "D9",
    ),
}
"""Faults to plant: where, under which name, what instead, and which promise that breaks."""


class TestPlantedFaults:
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("fault", FAULTS)
    def test_is_found(
        self, fault: str, memory: MemoryBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where, name, instead, promise = FAULTS[fault]
        monkeypatch.setattr(where, name, instead)
        how = settings(
            SETTINGS,
            max_examples=400,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        )

        with pytest.raises(AssertionError, match=f"^({promise}):"):
            simulate(memory, how)
