"""What is kept of a run that has ended, and where it can be driven anew without a trace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from services.agent.domain.chat import RunContext
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, RunId
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Run, StopReason
from services.common.identity import Identity

_FROM_OUTSIDE: Final = {
    StopReason.CANCELLED,
    StopReason.INTERRUPTED,
    StopReason.MAX_DURATION,
    StopReason.CRASH_LOOP,
    StopReason.AGENT_DELETED,
    StopReason.INTERNAL,
    StopReason.HOOK,
}


@dataclass(frozen=True, slots=True)
class Recording:
    """A run as it was stored.

    Attributes:
        run: the run.
        agent: as it was when the run was taken; None if it never was.
        history: messages of the turns before, as `RunContext.history`; without those that were
            forgotten, be it after the run.
        messages: of the run, by sequence, the user's first; without those that are discarded,
            unless the whole run is.
    """

    run: Run
    agent: Agent | None
    history: Sequence[Message]
    messages: Sequence[Message]

    @property
    def ended_from_outside(self) -> bool:
        """Whether what ended the run is no consequence of what was said in it."""
        return self.run.stop_reason is None or self.run.stop_reason in _FROM_OUTSIDE


class Recordings(Protocol):
    """Reads what was recorded; each run is seen by its user alone."""

    async def get(self, identity: Identity, run_id: RunId) -> Recording:
        """A run of the user's, ended or not.

        Raises:
            NotFoundError: the user has no such run.
        """


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay wrote.

    Attributes:
        run: as it ended, or stood last.
        messages: all of it, the user's first.
    """

    run: Run
    messages: Sequence[Message]


class Scratch(Protocol):
    """A place for one run that nobody else sees."""

    async def begin(self) -> tuple[RunContext, RunJournal]:
        """What the run begins with, and where it writes."""

    def outcome(self) -> Outcome:
        """What has been written."""


MakeScratch: TypeAlias = Callable[[Recording, Agent], Scratch]
"""Makes the place for a recorded run, answered by an agent."""
