"""What is kept of runs in memory."""

from dataclasses import replace

from services.agent.domain.memory.models import Memory
from services.agent.domain.models import Agent, RunId
from services.agent.domain.queue import MAX_HISTORY_BYTES
from services.agent.domain.replay.recording import Recording
from services.agent.domain.run_models import Run
from services.agent.store.memory.database import MemoryDatabase, StoredRun, bounded
from services.common.identity import Identity


class MemoryRecordings:
    """`Recordings` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def get(self, identity: Identity, run_id: RunId) -> Recording:
        stored = self._db.run(identity, run_id)
        run, agent = stored.run, self._agent(stored)
        said = self._db.messages[run.session_id]
        turns = {each.run.id: each.run.turn for each in self._db.runs_of(run.session_id)}
        cleared = self._db.memories.get(run.session_id, Memory()).cleared_turn
        past = [m for m in said if cleared < turns[m.run_id] < run.turn and not m.discarded]
        past.sort(key=lambda message: (turns[message.run_id], message.sequence))
        most = agent.settings.window.messages_at_once if agent else 0
        history = [*bounded(past[::-1], most=most, max_bytes=MAX_HISTORY_BYTES).items][::-1]
        own = [m for m in said if m.run_id == run_id and (run.discarded or not m.discarded)]
        return Recording(run, agent, history, own)

    def _agent(self, stored: StoredRun) -> Agent | None:
        if stored.settings is None:
            return None
        agent = self._db.agents.get(stored.run.agent_id)
        return replace(agent or _gone(stored.run, stored), settings=stored.settings)


def _gone(run: Run, stored: StoredRun) -> Agent:
    """An agent that was deleted, as far as its runs tell of it."""
    if stored.settings is None:
        raise LookupError("the run was never taken")
    moment = run.create_time
    return Agent(run.agent_id, run.tenant, run.user_id, stored.settings, moment, moment)
