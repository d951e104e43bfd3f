"""What the runs of a session have called, counted in memory."""

from collections import Counter

from services.agent.domain.hooks.hook import CallCounts
from services.agent.domain.models import RunId, SessionId
from services.agent.store.memory.database import MemoryDatabase


class MemoryCallHistory:
    """`CallHistory` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def calls_of_others(self, session_id: SessionId, run_id: RunId) -> CallCounts:
        others = [each for each in self._db.runs_of(session_id) if each.run.id != run_id]
        return CallCounts(
            sum(each.run.step_count for each in others),
            Counter(call.tool_name for each in others for call in each.calls),
        )
