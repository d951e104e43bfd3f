"""How runs are asked to stop. Those that nobody works on end at once, others by their worker.

The first to ask decides the stop reason; whoever asks for it has the run discarded in any case.
"""

from asyncpg import Record

from services.agent.domain.endings import CANCELLED, INTERRUPTED
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run, RunState, StopReason
from services.agent.store.postgres.ends import End, end_run
from services.agent.store.postgres.rows import RUN, run_of
from services.common.db import PooledConnection
from services.common.identity import Identity
from services.common.ids import NewId

_HELD = "(lease_until IS NOT NULL AND state <> 'awaiting_approval')"
# The lock on the run's row alone is enough: only its worker hears of it.
_CANCEL_HELD = f"""
UPDATE run SET cancel_reason = coalesce(cancel_reason, 'cancelled')
WHERE tenant = $1 AND user_id = $2 AND id = $3 AND {_HELD}
RETURNING {RUN}
"""
_CANCEL = f"""
UPDATE run SET cancel_reason = coalesce(cancel_reason, 'cancelled')
WHERE tenant = $1 AND user_id = $2 AND id = $3 AND end_time IS NULL
RETURNING {RUN}, epoch, {_HELD} AS held
"""
_INTERRUPT = f"""
UPDATE run SET cancel_reason = coalesce(cancel_reason, 'interrupted'), discarded = discarded OR $4
WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND end_time IS NULL
RETURNING {RUN}, epoch, {_HELD} AS held
"""
_CANCEL_APPROVALS = """
UPDATE approval SET state = 'cancelled', resolve_time = clock_timestamp()
WHERE session_id = $1 AND turn = $2 AND state = 'pending' AND expire_time > clock_timestamp()
"""


async def cancel_held(lent: PooledConnection, identity: Identity, run_id: RunId) -> Run | None:
    """A run that a worker holds, now that it is asked to stop; None where none holds it."""
    row = await lent.fetchrow(_CANCEL_HELD, identity.tenant, identity.user_id, run_id)
    return None if row is None else run_of(row)


async def cancel_run(
    lent: PooledConnection, identity: Identity, run_id: RunId, *, new_id: NewId
) -> None:
    """Ask a run to stop, in a transaction that has locked its session."""
    row = await lent.fetchrow(_CANCEL, identity.tenant, identity.user_id, run_id)
    if row is not None:
        await _end_unless_held(lent, row, new_id=new_id)


async def interrupt_runs(
    lent: PooledConnection,
    identity: Identity,
    session_id: SessionId,
    *,
    discard: bool,
    new_id: NewId,
) -> None:
    """Ask all runs of a session to stop, in a transaction that has locked it."""
    key = (identity.tenant, identity.user_id, session_id)
    rows = await lent.fetch(_INTERRUPT, *key, discard)
    for row in sorted(rows, key=lambda row: int(row["turn"])):
        await _end_unless_held(lent, row, new_id=new_id)


async def _end_unless_held(lent: PooledConnection, row: Record, *, new_id: NewId) -> None:
    if not row["held"]:
        run = run_of(row)
        if run.state is RunState.AWAITING_APPROVAL:
            await lent.execute(_CANCEL_APPROVALS, run.session_id, run.turn)
        interrupted = run.cancel_reason is StopReason.INTERRUPTED
        ending = INTERRUPTED if interrupted else CANCELLED
        await end_run(lent, End(run, row["epoch"], ending, held=False), new_id=new_id)
