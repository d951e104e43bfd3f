"""What those who watch sessions are told, in memory."""

from collections.abc import Sequence

from services.agent.domain.messages import Message
from services.agent.domain.watch.news import Look, Mark, Pulse, Read
from services.agent.store.memory.database import MemoryDatabase, bounded
from services.common.errors import NotFoundError
from services.common.paging import Listing

_MOST_RUNS = 200


class MemoryNewsStore:
    """`NewsStore` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def pulses(self, looks: Sequence[Look]) -> Sequence[Pulse | None]:
        return [self._pulse(look) for look in looks]

    async def messages(
        self, reads: Sequence[Read], *, most: int, max_bytes: int
    ) -> Sequence[Listing[Message]]:
        return [
            bounded(self._said(read)[read.after :], most=most, max_bytes=max_bytes)
            for read in reads
        ]

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        now = (Mark(each.identity, each.session_id, self._mark(each)) for each in marks)
        return [found for found, known in zip(now, marks, strict=True) if found != known]

    def _pulse(self, look: Look) -> Pulse | None:
        try:
            session = self._db.session(look.identity, look.session_id)
        except NotFoundError:
            return None
        runs = [stored.run for stored in self._db.runs_of(look.session_id)]
        turn = runs[-1].turn if look.from_turn is None and runs else look.from_turn or 0
        earlier = [
            run
            for run in runs
            if run.turn < turn and (not run.state.final or run.id in look.open_runs)
        ]
        following = [run for run in runs if run.turn >= turn]
        return Pulse(
            session.last_sequence,
            [*earlier, *following[:_MOST_RUNS]],
            more=len(following) > _MOST_RUNS,
        )

    def _mark(self, known: Mark) -> str | None:
        pulse = self._pulse(Look(known.identity, known.session_id, 2**63 - 1))
        if pulse is None:
            return None
        standing = [
            (run.turn, run.state, run.cancel_reason, run.discarded, run.attempt)
            for run in pulse.runs
        ]
        return f"{pulse.last_sequence} {standing}"

    def _said(self, read: Read) -> Sequence[Message]:
        try:
            self._db.session(read.identity, read.session_id)
        except NotFoundError:
            return ()
        return self._db.messages[read.session_id]
