"""Approvals in PostgreSQL as the users of their runs see and answer them."""

from collections.abc import Sequence
from functools import partial

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
from services.agent.domain.run_models import Run
from services.agent.domain.stores import RequestKey
from services.agent.store.postgres.ends import lock_session
from services.agent.store.postgres.line import HEAD
from services.agent.store.postgres.requests import remember
from services.agent.store.postgres.rows import APPROVAL, RUN, approval_of, present, run_of
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.paging import Page

_LIST = f"""
SELECT * FROM (
    SELECT {APPROVAL} FROM approval
    WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND turn >= $4 AND turn <= $5
      AND (turn, step, place) > ($6, $7, $8)
) AS found
WHERE $9::text IS NULL OR stands = $9
ORDER BY turn, step, place LIMIT $10
"""
_TURN = """
SELECT session_id, turn FROM run WHERE tenant = $1 AND user_id = $2 AND id = $3
"""
_GET = f"""
SELECT {APPROVAL} FROM approval WHERE tenant = $1 AND user_id = $2 AND id = $3
"""
# Whoever takes the run at the end of its wait skips it while it is locked, or has it already.
_LOCK_RUN = "SELECT id FROM run WHERE id = $1 FOR NO KEY UPDATE"
_RUN = f"SELECT {RUN} FROM run WHERE id = $1"
_RESOLVE = """
UPDATE approval SET
    state = $2, resolve_time = clock_timestamp(), resolver_user_id = $3, comment = $4
WHERE id = $1 AND state = 'pending' AND expire_time > clock_timestamp()
RETURNING id
"""
_GO_ON = f"""
UPDATE run SET state = 'idle', lease_until = NULL, place = {HEAD}
WHERE id = $1 AND state = 'awaiting_approval' AND NOT EXISTS (
    SELECT FROM approval
    WHERE approval.session_id = run.session_id AND approval.turn = run.turn
      AND approval.state = 'pending')
"""


class PostgresApprovalStore:
    """`ApprovalStore` over the table `approval`; the methods are explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

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
        first, last = 0, 2**63 - 1
        async with connection(self._pool) as lent:
            if run_id is not None:
                row = await lent.fetchrow(_TURN, identity.tenant, identity.user_id, run_id)
                if row is None:
                    return []
                session_id, first, last = row["session_id"], row["turn"], row["turn"]
            key = (identity.tenant, identity.user_id, session_id, first, last)
            rows = await lent.fetch(_LIST, *key, *after, state and state.value, page.size)
        return [approval_of(row) for row in rows]

    async def resolve(
        self,
        identity: Identity,
        approval_id: ApprovalId,
        answer: Answer,
        *,
        request: RequestKey | None = None,
    ) -> tuple[Approval, Run]:
        async with transaction(self._pool) as lent:
            get = partial(_get, lent, identity, approval_id)
            asked = await get()
            await lock_session(lent, asked.session_id)
            await lent.fetchval(_LOCK_RUN, asked.run_id)
            if not await _came_before(lent, identity, approval_id, request):
                check_answer(await get(), answer)
                key = (approval_id, answer.decision.state.value, identity.user_id, answer.comment)
                if await lent.fetchval(_RESOLVE, *key) is None:
                    check_answer(await get(), answer)
                await lent.execute(_GO_ON, asked.run_id)
            return await get(), run_of(present(await lent.fetchrow(_RUN, asked.run_id)))


async def _get(lent: PooledConnection, identity: Identity, approval_id: ApprovalId) -> Approval:
    row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, approval_id)
    if row is None:
        raise unknown("approval", approval_id)
    return approval_of(row)


async def _came_before(
    lent: PooledConnection,
    identity: Identity,
    approval_id: ApprovalId,
    request: RequestKey | None,
) -> bool:
    if request is None:
        return False
    first = await remember(lent, identity, request, kind="resolve_approval", result_id=approval_id)
    return first is not None
