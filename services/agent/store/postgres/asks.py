"""How a run asks for the run of a sub-agent: accepted once for each call, and taken at once.

The session and the run that ask are locked before anything of the sub-agent's, as wherever both
are. So neither ends, is taken over or is deleted meanwhile: whoever does that sees all sub-agents.
"""

from datetime import timedelta
from typing import Final

from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.messages import Draft, Role
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Run
from services.agent.domain.sub_runs import Answered, Task
from services.agent.domain.titles import titles_of
from services.agent.store.codec import limits_to_json
from services.agent.store.postgres.inserts import SAY, draft_columns
from services.agent.store.postgres.rows import RUN, message_of, present, run_of
from services.agent.store.postgres.titles import title
from services.common.db import PooledConnection
from services.common.ids import NewId

_LOCK_SESSION = "SELECT id FROM chat_session WHERE id = $1 FOR KEY SHARE"
_LOCK_CALLER = """
SELECT id FROM run
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND cancel_reason IS NULL
FOR SHARE
"""
_FIND = f"SELECT {RUN} FROM run WHERE parent_run_id = $1 AND parent_call_key = $2"
_TITLE = title(tenant="asking.tenant", agent="asking.agent_id", plain="$15", masked="$19")
_ACCEPT = f"""
WITH asking AS (
    SELECT run.id, run.tenant, run.user_id, agent.id AS agent_id,
        run.callers || run.agent_id AS callers, clock_timestamp() AS moment, (
            SELECT time_zone FROM chat_session WHERE chat_session.id = run.session_id
        ) AS time_zone
    FROM run JOIN agent ON agent.id = $13 AND agent.tenant = run.tenant
        AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
    WHERE run.id = $12
), opened AS (
    INSERT INTO chat_session (
        id, tenant, user_id, agent_id, title, last_sequence, unfinished, create_time, update_time,
        parent_run_id, parent_call_key, time_zone)
    SELECT $14, tenant, user_id, agent_id, {_TITLE}, 1, 1, moment, moment, id, $17, time_zone
    FROM asking
), started AS (
    INSERT INTO run (
        id, session_id, tenant, user_id, agent_id, message_id, turn, state, create_time,
        parent_run_id, parent_call_key, callers, parent_limits)
    SELECT
        $16, $14, tenant, user_id, agent_id, ($1::uuid[])[1], 1, 'idle', moment,
        id, $17, callers, $18
    FROM asking
    RETURNING {RUN}
), written AS (
    SELECT *, 0::bigint AS last_sequence, create_time AS moment, 1 AS number FROM started
), said AS (
    {SAY}
)
SELECT id FROM written
"""
_TAKE = f"""
UPDATE run SET
    epoch = epoch + 1, crashes = crashes + (lease_until IS NOT NULL)::integer, state = 'planning',
    lease_until = clock_timestamp() + $2, start_time = coalesce(start_time, clock_timestamp()),
    agent_settings = coalesce(agent_settings, (
        SELECT to_jsonb(agent) FROM agent
        WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
          AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')))
WHERE id = $1 AND end_time IS NULL
RETURNING {RUN}, epoch, crashes
"""
_LAST_WORD = """
SELECT * FROM chat_message WHERE session_id = $1 AND turn = $2 AND role = 'assistant'
ORDER BY sequence DESC LIMIT 1
"""
_TOOL_CALLS = "SELECT count(*) FROM tool_call WHERE run_id = $1"

SUB_TOTALS: Final = """
SELECT
    coalesce(sum(sub.input_tokens + sub.sub_input_tokens), 0) AS input_tokens,
    coalesce(sum(sub.output_tokens + sub.sub_output_tokens), 0) AS output_tokens,
    coalesce(sum(sub.cached_input_tokens + sub.sub_cached_input_tokens), 0) AS cached_input_tokens,
    coalesce(sum(sub.reasoning_tokens + sub.sub_reasoning_tokens), 0) AS reasoning_tokens,
    max(coalesce(sub.sub_cost_currency, sub.cost_currency)) AS cost_currency,
    sum(coalesce(sub.cost_nanos, 0) + coalesce(sub.sub_cost_nanos, 0)) AS cost_nanos,
    coalesce(sum(sub.sub_tool_calls + (
        SELECT count(*) FROM tool_call WHERE tool_call.run_id = sub.id)), 0) AS tool_calls
FROM run AS sub WHERE sub.parent_run_id = {run_id}
"""
"""What the sub-agents of a run have used."""


async def ask(
    lent: PooledConnection, claim: Claim, task: Task, *, lease: timedelta, new_id: NewId
) -> Claim | Answered:
    """See `RunQueue.ask`; in a transaction."""
    caller = claim.run
    await lent.execute(_LOCK_SESSION, caller.session_id)
    if await lent.fetchval(_LOCK_CALLER, caller.id, claim.epoch) is None:
        raise FencedError
    found = await lent.fetchrow(_FIND, caller.id, task.call_key)
    if found is not None and found["end_time"] is not None:
        return await _answered(lent, run_of(found))
    run_id = await _accept(lent, caller, task, new_id) if found is None else found["id"]
    taken = await lent.fetchrow(_TAKE, run_id, lease)
    if taken is None:
        # It ended between the two statements.
        found = await lent.fetchrow(_FIND, caller.id, task.call_key)
        return await _answered(lent, run_of(present(found)))
    return Claim(run_of(taken), taken["epoch"], taken["crashes"])


async def _accept(lent: PooledConnection, caller: Run, task: Task, new_id: NewId) -> str:
    titles = titles_of(task.text)
    run_id = await lent.fetchval(
        _ACCEPT,
        *draft_columns([Draft(Role.USER, task.text)], [new_id()]),
        [1],
        [1],
        caller.id,
        task.agent_id,
        new_id(),
        titles.plain,
        new_id(),
        task.call_key,
        limits_to_json(task.limits),
        titles.masked,
    )
    if run_id is None:
        raise AgentDeletedError.of(task.agent_id)
    return str(run_id)


async def _answered(lent: PooledConnection, run: Run) -> Answered:
    row = await lent.fetchrow(_LAST_WORD, run.session_id, run.turn)
    last = None if row is None else message_of(row)
    calls: int = present(await lent.fetchval(_TOOL_CALLS, run.id))
    return Answered(
        run=run,
        answer=None if last is None or last.tool_calls else last,
        tool_calls=calls + run.sub_tool_calls,
    )
