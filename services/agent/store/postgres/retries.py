"""How a run that failed is put back in line."""

from services.agent.domain.depth import Depth
from services.agent.domain.errors import (
    AgentDeletedError,
    RunNotFailedError,
    SubSessionError,
    unknown,
)
from services.agent.domain.models import RunId
from services.agent.domain.run_models import Run, RunState
from services.agent.store.postgres.ends import lock_session
from services.agent.store.postgres.line import line_up
from services.agent.store.postgres.memories import forget_summary
from services.agent.store.postgres.rows import RUN, present, run_of
from services.common.db import PooledConnection
from services.common.identity import Identity

_SESSION = """
SELECT session_id FROM run WHERE tenant = $1 AND (user_id = $2 OR $4) AND id = $3
"""
_LOCK = f"""
SELECT
    {RUN},
    EXISTS (
        SELECT FROM agent
        WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
          AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
    ) AS has_agent,
    (SELECT unfinished FROM chat_session WHERE id = run.session_id) AS unfinished,
    (SELECT count(*) FROM (
        SELECT FROM run AS other WHERE tenant = $1 AND end_time IS NULL LIMIT $5
    ) AS counted) AS of_tenant
FROM run WHERE tenant = $1 AND (user_id = $2 OR $4) AND id = $3
FOR UPDATE OF run
"""
# It takes its agent anew: what made it fail may have been changed there.
_RETRY = f"""
WITH counted AS (
    UPDATE chat_session SET unfinished = unfinished + 1
    FROM run WHERE run.id = $1 AND chat_session.id = run.session_id
), discarded AS (
    UPDATE chat_message SET discarded = true
    FROM run
    WHERE run.id = $1 AND chat_message.session_id = run.session_id
      AND chat_message.turn = run.turn AND chat_message.role = 'system'
)
UPDATE run SET
    state = 'idle', stop_reason = NULL, error_reason = NULL, error_message = NULL,
    start_time = NULL, end_time = NULL, waited = '0', agent_settings = NULL, crashes = 0,
    attempt = attempt + 1, spent_steps = step_count,
    spent_tokens = input_tokens + output_tokens + sub_input_tokens + sub_output_tokens,
    spent_calls = sub_tool_calls + (SELECT count(*) FROM tool_call WHERE tool_call.run_id = $1)
WHERE id = $1
RETURNING {RUN}
"""


async def retry_run(lent: PooledConnection, identity: Identity, run_id: RunId, depth: Depth) -> Run:
    """See `RunStore.retry`; in a transaction."""
    key = (identity.tenant, identity.user_id, run_id, identity.is_admin)
    session_id = await lent.fetchval(_SESSION, *key)
    if session_id is None:
        raise unknown("run", run_id)
    await lock_session(lent, session_id)
    row = await lent.fetchrow(_LOCK, *key, depth.tenant)
    if row is None:
        raise unknown("run", run_id)
    run = run_of(row)
    if run.parent is not None:
        raise SubSessionError.of(run.session_id, run.parent.run_id)
    if not run.state.final:
        return run
    if run.state is not RunState.ERROR:
        raise RunNotFailedError.of(run.id, run.state.name)
    if not row["has_agent"]:
        raise AgentDeletedError.of(run.agent_id)
    depth.check(of_session=row["unfinished"], of_tenant=row["of_tenant"])
    retried = run_of(present(await lent.fetchrow(_RETRY, run_id)))
    await forget_summary(lent, run.session_id, from_turn=run.turn)
    await line_up(lent, run.session_id)
    return retried
