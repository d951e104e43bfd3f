"""What is kept in PostgreSQL of results that were cut."""

from services.agent.domain.messages import Whole
from services.agent.domain.models import RunId
from services.common.db import Pool, connection

_WHOLE = """
SELECT whole, whole_chars, whole_source FROM tool_call
WHERE run_id = $1 AND step = $2 AND place = $3 AND whole IS NOT NULL
"""


class PostgresCutResults:
    """`CutResults` over the table `tool_call`; the method is explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def whole(self, run_id: RunId, step: int, place: int) -> Whole | None:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_WHOLE, run_id, step, place)
        return None if row is None else Whole(row[0], row[1], row[2])
