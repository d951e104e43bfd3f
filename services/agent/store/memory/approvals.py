"""Approvals in memory as the users of their runs see and answer them."""

from collections.abc import Sequence
from dataclasses import replace

from services.agent.domain.approval_models import (
    Answer,
    Approval,
    ApprovalId,
    ApprovalState,
    read_position,
)
from services.agent.domain.approvals import check_answer
from services.agent.domain.errors import unknown
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run, RunState
from services.agent.domain.stores import RequestKey
from services.agent.store.memory.database import MemoryDatabase, StoredRun
from services.common.identity import Identity
from services.common.paging import Page


class MemoryApprovalStore:
    """`ApprovalStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def list(
        self,
        identity: Identity,
        page: Page,
        *,
        session_id: SessionId | None = None,
        run_id: RunId | None = None,
        state: ApprovalState | None = None,
    ) -> Sequence[Approval]:
        after = read_position(page.after[0]) if page.after else (0, 0, 0)
        found = [
            approval
            for stored in sorted(self._db.runs.values(), key=lambda stored: stored.run.turn)
            if _is_of(stored, identity)
            and (stored.run.id == run_id or stored.run.session_id == session_id)
            for approval in self._db.approvals(stored)
            if (approval.turn, approval.step, approval.place) > after
            and state in {None, approval.state}
        ]
        return found[: page.size]

    async def resolve(
        self,
        identity: Identity,
        approval_id: ApprovalId,
        answer: Answer,
        *,
        request: RequestKey | None = None,
    ) -> tuple[Approval, Run]:
        stored = self._asking(identity, approval_id)
        if request is None or self._db.earlier(identity, request, "resolve_approval") is None:
            check_answer(self._approval(stored, approval_id), answer)
            stored.approvals[approval_id] = replace(
                stored.approvals[approval_id],
                state=answer.decision.state,
                resolve_time=self._db.clock(),
                resolver_user_id=identity.user_id,
                comment=answer.comment,
            )
            self._db.remember(identity, request, "resolve_approval", approval_id)
            self._go_on(stored)
        return self._approval(stored, approval_id), stored.run

    def _go_on(self, stored: StoredRun) -> None:
        """Let a run that nobody has to be asked about any more wait for a worker."""
        pending = any(each.state is ApprovalState.PENDING for each in stored.approvals.values())
        if stored.run.state is RunState.AWAITING_APPROVAL and not pending:
            stored.lease_until = None
            stored.run = replace(stored.run, state=RunState.IDLE)

    def _asking(self, identity: Identity, approval_id: ApprovalId) -> StoredRun:
        for stored in self._db.runs.values():
            if approval_id in stored.approvals and _is_of(stored, identity):
                return stored
        raise unknown("approval", approval_id)

    def _approval(self, stored: StoredRun, approval_id: ApprovalId) -> Approval:
        return next(each for each in self._db.approvals(stored) if each.id == approval_id)


def _is_of(stored: StoredRun, identity: Identity) -> bool:
    return (stored.run.tenant, stored.run.user_id) == (identity.tenant, identity.user_id)
