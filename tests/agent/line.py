"""What must be true of the agent's tables whenever nobody is amid a change."""

from services.common.db import Pool, connection

_BROKEN = """
SELECT chat_session.id, chat_session.unfinished, counted.*
FROM chat_session, LATERAL (
    SELECT
        count(*) FILTER (WHERE end_time IS NULL) AS runs,
        count(*) FILTER (WHERE place IS NOT NULL) AS waiting,
        count(*) FILTER (WHERE lease_until IS NOT NULL) AS held
    FROM run WHERE run.session_id = chat_session.id
) AS counted
WHERE unfinished <> runs OR (waiting + held = 1) <> (runs > 0) OR waiting + held > 1
"""
_OPEN = """
SELECT tool_call.* FROM tool_call JOIN run ON run.id = tool_call.run_id
WHERE run.end_time IS NOT NULL AND tool_call.end_time IS NULL
"""
_GAPS = """
SELECT chat_session.id FROM chat_session LEFT JOIN chat_message
    ON chat_message.session_id = chat_session.id
GROUP BY chat_session.id
HAVING count(chat_message.id) <> last_sequence
    OR coalesce(max(chat_message.sequence), 0) <> last_sequence
"""


async def check_line(pool: Pool) -> None:
    """See that the tables agree: none of these queries may find anything.

    A session knows how many of its runs have not ended; if any, exactly one of them is held or in
    line. No call of a run that has ended is open. Messages are numbered without gaps.
    """
    async with connection(pool) as lent:
        for statement in (_BROKEN, _OPEN, _GAPS):
            found = await lent.fetch(statement)
            assert [dict(row) for row in found] == []
