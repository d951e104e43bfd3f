"""What is kept in memory of results that were cut."""

from services.agent.domain.messages import Whole
from services.agent.domain.models import RunId
from services.agent.store.memory.database import MemoryDatabase


class MemoryCutResults:
    """`CutResults` in memory; the method is explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def whole(self, run_id: RunId, step: int, place: int) -> Whole | None:
        stored = self._db.runs.get(run_id)
        return None if stored is None else stored.wholes.get((step, place))
