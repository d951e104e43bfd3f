"""A database in memory for a single run, so that what it writes leaves no trace."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count

from services.agent.domain.chat import RunContext
from services.agent.domain.models import Agent, Session
from services.agent.domain.ports import RunJournal
from services.agent.domain.replay.recording import Outcome, Recording
from services.agent.store.memory.database import MemoryDatabase
from services.agent.store.memory.queue import MemoryRunQueue
from services.agent.store.memory.runs import MemoryRunStore
from services.common.identity import Identity

_LEASE = timedelta(days=1)


class MemoryScratch:
    """`Scratch` in memory; the methods are explained there."""

    def __init__(self, recording: Recording, agent: Agent) -> None:
        self._recording = recording
        moment = recording.run.create_time
        ids: Iterator[int] = count(1)
        self._db = MemoryDatabase(clock=lambda: moment, new_id=lambda: f"scratch-{next(ids)}")
        self._db.agents[agent.id] = agent
        run = recording.run
        self._db.sessions[run.session_id] = Session(
            id=run.session_id,
            tenant=run.tenant,
            user_id=run.user_id,
            agent_id=agent.id,
            title="",
            last_sequence=0,
            active_run_id=None,
            create_time=moment,
            update_time=moment,
        )
        self._db.messages[run.session_id] = []

    async def begin(self) -> tuple[RunContext, RunJournal]:
        run, queue = self._recording.run, MemoryRunQueue(self._db)
        runs = MemoryRunStore(self._db, queue_limit=1, tenant_queue_limit=1)
        identity = Identity(run.tenant, run.user_id)
        await runs.start(identity, run.session_id, self._recording.messages[0].text)
        [claim] = await queue.claim(lease=_LEASE, most=1)
        context = await queue.context(claim)
        begun = replace(context.run, before=run.before, attempt=run.attempt, parent=run.parent)
        context = replace(context, run=begun, history=self._recording.history)
        return context, queue.journal(claim)

    def outcome(self) -> Outcome:
        [stored] = self._db.runs.values()
        return Outcome(stored.run, self._db.messages[stored.run.session_id])
