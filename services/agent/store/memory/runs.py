"""Runs in memory: as their users see them, as workers take them, and what workers write."""

from collections.abc import Sequence
from dataclasses import replace

from services.agent.domain.access import sees
from services.agent.domain.endings import CANCELLED, CANCELLED_NOTICE, notice
from services.agent.domain.errors import (
    AgentDeletedError,
    QueueFullError,
    RunInProgressError,
)
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import MessageId, RunId, Session, SessionId
from services.agent.domain.run_models import Run, RunState, WhenBusy
from services.agent.domain.sessions import title_of
from services.agent.domain.stores import Pulse, RequestKey
from services.agent.store.memory.database import Held, MemoryDatabase
from services.common.identity import Identity
from services.common.paging import Page


class MemoryRunStore:
    """`RunStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase, *, queue_limit: int) -> None:
        self._db = database
        self._queue_limit = queue_limit

    async def start(
        self,
        identity: Identity,
        session_id: SessionId,
        text: str,
        *,
        when_busy: WhenBusy = WhenBusy.ENQUEUE,
        request: RequestKey | None = None,
    ) -> tuple[Run, Message]:
        if request is not None:
            first = self._db.earlier(identity, request, "start_run")
            if first is not None:
                run = self._db.run(identity, RunId(first)).run
                return run, self._db.messages[run.session_id][run.turn - 1]
        session = self._db.session(identity, session_id)
        self._admit(identity, session, when_busy)
        run, message = self._accept(session, text)
        self._db.remember(identity, request, "start_run", run.id)
        return run, message

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        return self._db.run(identity, run_id).run

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Sequence[Run]:
        owner = (identity.tenant, identity.user_id)
        runs = [
            held.run
            for held in reversed(self._db.runs_of(session_id))
            if (held.run.tenant, held.run.user_id) == owner
            and (not page.after or held.run.turn < int(page.after[0]))
        ]
        return runs[: page.size]

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        held = self._db.run(identity, run_id)
        if held.run.state is RunState.IDLE:
            self._db.end(held, CANCELLED, [notice(CANCELLED_NOTICE)])
        elif not held.run.state.final:
            held.run = replace(held.run, cancel_requested=True)
        return held.run

    async def pulse(self, identity: Identity, session_id: SessionId, *, from_turn: int) -> Pulse:
        session = self._db.session(identity, session_id)
        runs = [held.run for held in self._db.runs_of(session_id) if held.run.turn >= from_turn]
        return Pulse(session.last_sequence, runs)

    def _admit(self, identity: Identity, session: Session, when_busy: WhenBusy) -> None:
        agent = self._db.agents.get(session.agent_id)
        if agent is None or not sees(identity, agent):
            raise AgentDeletedError.of(session.agent_id)
        unfinished = list(self._db.unfinished(session.id))
        if unfinished and when_busy is WhenBusy.REJECT:
            raise RunInProgressError.of(unfinished[0].run.id)
        if len(unfinished) >= self._queue_limit:
            raise QueueFullError.of(self._queue_limit)

    def _accept(self, session: Session, text: str) -> tuple[Run, Message]:
        run = Run(
            id=RunId(self._db.new_id()),
            session_id=session.id,
            tenant=session.tenant,
            user_id=session.user_id,
            agent_id=session.agent_id,
            message_id=MessageId(""),
            turn=session.last_sequence + 1,
            state=RunState.IDLE,
            create_time=self._db.clock(),
        )
        [message] = self._db.append(run, [Draft(Role.USER, text)])
        run = replace(run, message_id=message.id)
        self._db.runs[run.id] = Held(run)
        if run.turn == 1 and not session.title:
            titled = replace(self._db.sessions[session.id], title=title_of(text))
            self._db.sessions[session.id] = titled
        return run, message
