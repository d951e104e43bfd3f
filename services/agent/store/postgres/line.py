"""The line of waiting runs: which of a session's runs stands in it, and where.

Only the first unfinished run of a session has a place, and only while nobody works on it. A new
place is behind the tenant's own and beside the first of all others, so that tenants take turns
however much one of them has waiting. Equal places are in the order in which the runs were accepted.
"""

from typing import Final

from services.agent.domain.models import SessionId
from services.common.db import PooledConnection

PLACE: Final = """
greatest(0, (
    SELECT first.place FROM run AS first
    WHERE first.place IS NOT NULL
    ORDER BY first.place, first.create_time LIMIT 1
), (
    SELECT own.place + 1 FROM run AS own
    WHERE own.tenant = {tenant} AND own.end_time IS NULL AND own.place IS NOT NULL
    ORDER BY own.place DESC LIMIT 1
))
"""
"""A new place for a run of a tenant."""

HEAD: Final = """
CASE WHEN run.parent_run_id IS NULL AND NOT EXISTS (
    SELECT FROM run AS other WHERE other.session_id = run.session_id AND other.place IS NOT NULL
) THEN coalesce((
    SELECT first.place FROM run AS first
    WHERE first.place IS NOT NULL
    ORDER BY first.place, first.create_time LIMIT 1
), 0) END
"""
"""The head of the line, for a run that was begun.

None if its session has another one in line; the run of a sub-agent stands in no line.
"""

_LINE_UP = f"""
UPDATE run SET place = CASE WHEN run.id = next.id THEN {PLACE.format(tenant="next.tenant")} END
FROM (
    SELECT id, tenant FROM run WHERE session_id = $1 AND end_time IS NULL ORDER BY turn LIMIT 1
) AS next
WHERE run.session_id = $1 AND run.end_time IS NULL AND (run.id = next.id) = (run.place IS NULL)
  AND NOT EXISTS (
    SELECT FROM run AS held WHERE held.session_id = $1 AND num_nulls(held.lease_until) = 0)
"""


async def line_up(lent: PooledConnection, session_id: SessionId) -> None:
    """Give the first unfinished run of a session a place, and no other; the session is locked."""
    await lent.execute(_LINE_UP, session_id)
