"""What the runs of a session have called, counted in PostgreSQL."""

from services.agent.domain.hooks.hook import CallCounts
from services.agent.domain.models import RunId, SessionId
from services.common.db import Pool, connection

_QUESTIONS = """
SELECT coalesce(sum(step_count), 0) FROM run WHERE session_id = $1 AND id <> $2
"""
_CALLS = """
SELECT tool_name, count(*) FROM run JOIN tool_call ON tool_call.run_id = run.id
WHERE run.session_id = $1 AND run.id <> $2
GROUP BY tool_name
"""


class PostgresCallHistory:
    """`CallHistory` over the tables `run` and `tool_call`; the methods are explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def calls_of_others(self, session_id: SessionId, run_id: RunId) -> CallCounts:
        async with connection(self._pool) as lent:
            questions = await lent.fetchval(_QUESTIONS, session_id, run_id)
            rows = await lent.fetch(_CALLS, session_id, run_id)
        return CallCounts(questions, {row["tool_name"]: row["count"] for row in rows})
