"""How far one who watches a session is: what was told, and what to ask for next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from services.agent.domain.errors import SequenceAheadError, unknown
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run, RunState
from services.agent.domain.watch.news import Look, Pulse, Read
from services.common.identity import Identity
from services.common.paging import Listing

_Standing: TypeAlias = tuple[RunState, bool, bool, int, int]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Says that all there was at the beginning has been told."""


News: TypeAlias = Message | Run | CaughtUp
"""What is told: the next message, a run whose state has changed, and once CaughtUp."""


class Position:
    """The position of one who watches a session.

    Attributes:
        identity: on whose behalf.
        session_id: the session.
        sent: the last sequence that was told.
        behind: whether there was more to be told than was.
    """

    def __init__(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        after: int | None,
        open_runs: Iterable[RunId] = (),
    ) -> None:
        """Nothing was told yet.

        Args:
            identity: on whose behalf.
            session_id: the session.
            after: the last sequence already seen; None for only what is new.
            open_runs: runs whose end is not known yet.
        """
        self.identity = identity
        self.session_id = session_id
        self.sent = after or 0
        self.behind = True
        self._after = after
        self._begun = False
        self._caught_up = False
        self._from_turn: int | None = None
        self._open: dict[RunId, _Standing | None] = dict.fromkeys(open_runs)

    @property
    def place(self) -> tuple[object, ...]:
        """What two positions have in common that will be told the same."""
        began = (self._begun, self._caught_up, None if self._begun else self._after)
        return (self.sent, self._from_turn, began, tuple(sorted(self._open.items())))

    @property
    def look(self) -> Look:
        """What to ask for next."""
        return Look(self.identity, self.session_id, self._from_turn, tuple(self._open))

    def begin(self, pulse: Pulse | None) -> Read | None:
        """Take up the position where the session stands; gives what to read now, if anything.

        Whoever goes on after a sequence is told how the newest run stands, as its end may have been
        missed; whoever wants only what is new is not, if it has ended.

        Raises:
            NotFoundError: the user has no such session, or not any more.
            SequenceAheadError: there is no such sequence yet.
        """
        if pulse is None:
            raise unknown("session", self.session_id)
        if not self._begun:
            if self._after is None:
                self.sent = pulse.last_sequence
                self._from_turn = pulse.last_sequence + 1
            elif self._after > pulse.last_sequence:
                raise SequenceAheadError.of(pulse.last_sequence)
            self._begun = True
        if self.sent >= pulse.last_sequence:
            return None
        self.behind = True
        return Read(self.identity, self.session_id, self.sent)

    def advance(self, pulse: Pulse, page: Listing[Message] | None) -> Sequence[tuple[News, int]]:
        """What is told now, each with the sequence up to which every message is told then.

        Runs are told only once all messages before them are.

        Args:
            pulse: where the session stood.
            page: what was read after that; None if nothing was.
        """
        messages = page.items if page else ()
        told: list[tuple[News, int]] = [(message, message.sequence) for message in messages]
        if messages:
            self.sent = messages[-1].sequence
        self.behind = self.sent < pulse.last_sequence or bool(page and page.more)
        if not self.behind:
            told += [(run, self.sent) for run in pulse.runs if self._is_news(run)]
            self.behind = pulse.more
        if not self.behind and not self._caught_up:
            self._caught_up = True
            told.append((CaughtUp(), self.sent))
        return told

    def _is_news(self, run: Run) -> bool:
        """Whether how a run stands was not told yet; by now it is."""
        if self._is_past(run):
            return False
        waits = run.step_count if run.state is RunState.AWAITING_APPROVAL else 0
        standing = (run.state, run.cancel_requested, run.discarded, run.attempt, waits)
        before = self._open.pop(run.id, None)
        if not run.state.final:
            self._open[run.id] = standing
        self._from_turn = max(self._from_turn or 0, run.turn + 1)
        return standing != before

    def _is_past(self, run: Run) -> bool:
        """Whether it ended before, which was told or is long past."""
        earlier = self._from_turn is not None and run.turn < self._from_turn
        return run.state.final and earlier and run.id not in self._open
