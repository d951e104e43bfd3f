"""What is kept of runs in PostgreSQL. Tenant and user are $1 and $2 of the first statement."""

from typing import Final

from asyncpg import Record

from services.agent.domain.errors import unknown
from services.agent.domain.models import Agent, AgentId, RunId
from services.agent.domain.queue import MAX_HISTORY_BYTES
from services.agent.domain.replay.recording import Recording
from services.agent.domain.run_models import Run
from services.agent.store.codec import settings_from_json
from services.agent.store.postgres.rows import RUN, message_of, run_of
from services.common.db import Pool, connection
from services.common.identity import Identity

_RUN: Final = f"""
SELECT
    {RUN}, run.agent_settings, agent.owner_user_id, agent.create_time AS agent_create_time,
    agent.update_time AS agent_update_time
FROM run LEFT JOIN agent ON agent.id = run.agent_id AND agent.tenant = run.tenant
WHERE run.tenant = $1 AND run.user_id = $2 AND run.id = $3
"""
# The sums run over what the index gives, so nothing large is read beyond the bounds.
_HISTORY: Final = """
SELECT * FROM (
    SELECT *, sum(wire_size) OVER (ORDER BY turn DESC, sequence DESC) AS bytes
    FROM (
        SELECT * FROM chat_message
        WHERE session_id = $1 AND turn < $2 AND NOT discarded
          AND turn > coalesce((SELECT cleared_turn FROM chat_memory WHERE session_id = $1), 0)
        ORDER BY turn DESC, sequence DESC LIMIT $3
    ) AS preceding
) AS counted
WHERE bytes <= $4
ORDER BY turn, sequence
"""
_SAID: Final = """
SELECT * FROM chat_message
WHERE session_id = $1 AND turn = $2 AND ($3 OR NOT discarded)
ORDER BY sequence
"""


class PostgresRecordings:
    """`Recordings` over the tables `run` and `chat_message`; explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, identity: Identity, run_id: RunId) -> Recording:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_RUN, identity.tenant, identity.user_id, run_id)
            if row is None:
                raise unknown("run", run_id)
            run = run_of(row)
            agent = _agent_of(run, row)
            most = agent.settings.window.messages_at_once if agent else 0
            turn = (run.session_id, run.turn)
            history = await lent.fetch(_HISTORY, *turn, most, MAX_HISTORY_BYTES)
            said = await lent.fetch(_SAID, *turn, run.discarded)
        return Recording(run, agent, [*map(message_of, history)], [*map(message_of, said)])


def _agent_of(run: Run, row: Record) -> Agent | None:
    """The run's agent as it was when the run was taken, also where it was deleted since."""
    if row["agent_settings"] is None:
        return None
    return Agent(
        id=AgentId(run.agent_id),
        tenant=run.tenant,
        owner_user_id=row["owner_user_id"] or run.user_id,
        settings=settings_from_json(row["agent_settings"]),
        create_time=row["agent_create_time"] or run.create_time,
        update_time=row["agent_update_time"] or run.create_time,
    )
