"""Approvals as the users of the runs see and answer them."""

import structlog

from services.agent.domain import hints
from services.agent.domain.approval_models import (
    Answer,
    Approval,
    ApprovalId,
    ApprovalState,
    Decision,
)
from services.agent.domain.errors import (
    ApprovalExpiredError,
    ApprovalMismatchError,
    ApprovalResolvedError,
)
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run
from services.agent.domain.stores import ApprovalStore, RequestKey, RunStore, SessionStore
from services.common.hints import Notifier
from services.common.identity import Identity
from services.common.paging import Listing, Page


class Approvals:
    """Shows approvals and takes the answers; what a model says is never one."""

    def __init__(
        self, store: ApprovalStore, *, runs: RunStore, sessions: SessionStore, notifier: Notifier
    ) -> None:
        self._store = store
        self._runs = runs
        self._sessions = sessions
        self._notifier = notifier
        self._log = structlog.get_logger("approvals")

    async def list(
        self,
        identity: Identity,
        page: Page,
        *,
        session_id: SessionId | None = None,
        run_id: RunId | None = None,
        state: ApprovalState | None = None,
    ) -> Listing[Approval]:
        """Those of a session or of a run; see `ApprovalStore.list`.

        Raises:
            NotFoundError: the user has no such session, or run.
        """
        if session_id is not None:
            await self._sessions.get(identity, session_id)
        if run_id is not None:
            await self._runs.get(identity, run_id)
        found = await self._store.list(
            identity, page.with_one_more(), session_id=session_id, run_id=run_id, state=state
        )
        return page.cut(found)

    async def resolve(
        self,
        identity: Identity,
        approval_id: ApprovalId,
        answer: Answer,
        *,
        request: RequestKey | None = None,
    ) -> tuple[Approval, Run]:
        """Answer a question; see `ApprovalStore.resolve`."""
        approval, run = await self._store.resolve(identity, approval_id, answer, request=request)
        self._log.info(
            "approval resolved",
            approval_id=approval_id,
            run_id=run.id,
            tool=approval.question.tool_name,
            arguments_digest=approval.question.digest,
            state=approval.state.value,
        )
        self._notifier.notify(run.session_id)
        self._notifier.notify(hints.RUNS)
        return approval, run


def check_answer(approval: Approval, answer: Answer) -> None:
    """Make sure that a question can be answered so.

    Raises:
        ApprovalResolvedError: it was answered before, or cancelled with its run.
        ApprovalExpiredError: it has lapsed.
        ApprovalMismatchError: the answer is to another question.
    """
    if approval.state is ApprovalState.EXPIRED:
        raise ApprovalExpiredError.of(approval.id, approval.expire_time)
    if approval.state is not ApprovalState.PENDING:
        raise ApprovalResolvedError.of(approval.id, approval.state.name)
    named = answer.digest or answer.decision is Decision.APPROVE
    if named and answer.digest != approval.question.digest:
        raise ApprovalMismatchError.of(approval.id)
