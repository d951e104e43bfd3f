"""What those who watch sessions need of a store: how many sessions stand, each asked together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run
from services.common.identity import Identity
from services.common.paging import Listing


@dataclass(frozen=True, slots=True)
class Look:
    """A look at where a session stands.

    Attributes:
        identity: its user.
        session_id: the session.
        from_turn: all runs from this turn on are asked for; None stands for the newest run's.
        open_runs: earlier runs that are asked for as well, though they may have ended. Those that
            have not are given in any case.
    """

    identity: Identity
    session_id: SessionId
    from_turn: int | None
    open_runs: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a session stands.

    Attributes:
        last_sequence: sequence of the newest message.
        runs: those that were asked for, as they stood at the same moment, in turn order; a bounded
            number of those from a turn on.
        more: whether there are more of those.
    """

    last_sequence: int
    runs: Sequence[Run]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a session's messages after a sequence."""

    identity: Identity
    session_id: SessionId
    after: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A session, and the mark of how it stood when last seen; None if it never was."""

    identity: Identity
    session_id: SessionId
    mark: str | None = None


class NewsStore(Protocol):
    """Reads many sessions at once; one that is not its user's counts as absent."""

    async def pulses(self, looks: Sequence[Look]) -> Sequence[Pulse | None]:
        """Where sessions stand, each as asked; None where the user has no such session."""

    async def messages(
        self, reads: Sequence[Read], *, most: int, max_bytes: int
    ) -> Sequence[Listing[Message]]:
        """Messages of sessions, each as `MessageStore.after` gives them."""

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """Those sessions whose mark is another one by now, with that; None if one is gone.

        The mark changes with every message, and with every change of a run that has not ended.
        """
