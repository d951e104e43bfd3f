"""Runs in memory: as their users see them, as workers take them, and what workers write."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from services.agent.domain.access import may_retry, sees
from services.agent.domain.depth import Depth
from services.agent.domain.errors import (
    AgentDeletedError,
    RunInProgressError,
    RunNotFailedError,
    SubSessionError,
    unknown,
)
from services.agent.domain.ledger import ToolCallRecord, read_position
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import AgentId, MessageId, RunId, Session, SessionId
from services.agent.domain.run_models import Run, RunState, Spent, StopReason, WhenBusy
from services.agent.domain.stores import RequestKey
from services.agent.domain.titles import titles_of
from services.agent.store.memory.database import MemoryDatabase, StoredRun
from services.agent.store.memory.ends import stop_run
from services.common.identity import Identity
from services.common.paging import Page


class MemoryRunStore:
    """`RunStore` in memory; the methods are explained there."""

    def __init__(
        self, database: MemoryDatabase, *, queue_limit: int, tenant_queue_limit: int
    ) -> None:
        self._db = database
        self._depth = Depth(queue_limit, tenant_queue_limit)

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
        self._admit(identity, self._db.session(identity, session_id), when_busy)
        run, message = self._accept(self._db.session(identity, session_id), text)
        self._db.remember(identity, request, "start_run", run.id)
        return run, message

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        return self._db.run(identity, run_id).run

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Sequence[Run]:
        owner = (identity.tenant, identity.user_id)
        runs = [
            stored.run
            for stored in reversed(self._db.runs_of(session_id))
            if (stored.run.tenant, stored.run.user_id) == owner
            and (not page.after or stored.run.turn < int(page.after[0]))
        ]
        return runs[: page.size]

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        stored = self._db.run(identity, run_id)
        if not stored.run.state.final:
            stop_run(self._db, stored, StopReason.CANCELLED)
        return stored.run

    async def retry(self, identity: Identity, run_id: RunId) -> Run:
        stored = self._db.runs.get(run_id)
        if stored is None or not may_retry(identity, stored.run):
            raise unknown("run", run_id)
        run = stored.run
        if run.parent is not None:
            raise SubSessionError.of(run.session_id, run.parent.run_id)
        if not run.state.final:
            return run
        if run.state is not RunState.ERROR:
            raise RunNotFailedError.of(run.id, run.state.name)
        if not self._has_agent(Identity(run.tenant, run.user_id), run.agent_id):
            raise AgentDeletedError.of(run.agent_id)
        self._depth.check(
            of_session=len(list(self._db.unfinished(run.session_id))),
            of_tenant=self._unfinished_of_tenant(run.tenant),
        )
        self._db.discard(
            run.session_id,
            lambda message: message.run_id == run.id and message.role is Role.SYSTEM,
        )
        self._db.forget_summary(run.session_id, from_turn=run.turn)
        stored.run = _retried(run, calls=len(stored.calls) + run.sub_tool_calls)
        stored.crashes, stored.settings, stored.waited = 0, None, timedelta()
        self._db.line_up(run.session_id)
        return stored.run

    async def tool_calls(
        self, identity: Identity, run_id: RunId, page: Page
    ) -> Sequence[ToolCallRecord]:
        after = read_position(page.after[0]) if page.after else (0, 0)
        calls = self._db.run(identity, run_id).calls
        found = [call for call in calls if not page.after or (call.step, call.place) > after]
        return found[: page.size]

    def _admit(self, identity: Identity, session: Session, when_busy: WhenBusy) -> None:
        if session.parent_run_id is not None:
            raise SubSessionError.of(session.id, session.parent_run_id)
        if not self._has_agent(identity, session.agent_id):
            raise AgentDeletedError.of(session.agent_id)
        unfinished = list(self._db.unfinished(session.id))
        if unfinished and when_busy is WhenBusy.REJECT:
            raise RunInProgressError.of(unfinished[0].run.id)
        stops = when_busy in {WhenBusy.INTERRUPT, WhenBusy.ROLLBACK}
        ended = [stored for stored in unfinished if stops and not stored.run.state.in_hand]
        self._depth.check(
            of_session=0 if stops else len(unfinished),
            of_tenant=self._unfinished_of_tenant(identity.tenant) - len(ended),
        )
        for stored in unfinished if stops else ():
            discard = when_busy is WhenBusy.ROLLBACK
            stop_run(self._db, stored, StopReason.INTERRUPTED, discard=discard)

    def _has_agent(self, identity: Identity, agent_id: AgentId) -> bool:
        agent = self._db.agents.get(agent_id)
        return agent is not None and sees(identity, agent)

    def _unfinished_of_tenant(self, tenant: str) -> int:
        runs = (stored.run for stored in self._db.runs.values())
        return sum(run.tenant == tenant and not run.state.final for run in runs)

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
        self._db.runs[run.id] = StoredRun(run)
        self._db.line_up(session.id)
        if run.turn == 1 and not session.title:
            title = titles_of(text).of(self._db.agents[session.agent_id].settings)
            titled = replace(self._db.sessions[session.id], title=title)
            self._db.sessions[session.id] = titled
        return run, message


def _retried(run: Run, *, calls: int) -> Run:
    """A run that failed, as it is for its next attempt."""
    return replace(
        run,
        state=RunState.IDLE,
        stop_reason=None,
        error=None,
        attempt=run.attempt + 1,
        before=Spent(run.step_count, calls, run.usage.total),
        start_time=None,
        end_time=None,
    )
