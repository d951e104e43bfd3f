"""What workers need of the store: runs to work on, one worker at a time for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from services.agent.domain.chat import RunContext
from services.agent.domain.models import RunId
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Run, StopReason
from services.agent.domain.sub_runs import Answered, Task

MAX_HISTORY_BYTES: Final = 8 * 1024 * 1024
"""What the messages of past turns that a run is given take on the wire at most."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's hold on a run.

    Attributes:
        run: as it was when claimed.
        epoch: counts the claims of the run; the token of every write.
        crashes: how often a worker was lost while it held the run.
    """

    run: Run
    epoch: int
    crashes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a worker learns of a run that it still holds.

    Attributes:
        cancel_reason: it was asked to stop, for CANCELLED or INTERRUPTED.
        agent_gone: its agent was deleted, or the user no longer sees it.
    """

    cancel_reason: StopReason | None
    agent_gone: bool


@dataclass(frozen=True, slots=True)
class Caution:
    """How many runs a worker takes that may be what workers are lost to.

    Attributes:
        crashes: a run is suspected once so many were lost while they held it.
        most: how many suspected ones are taken at most.
    """

    crashes: int
    most: int


TRUSTING: Final = Caution(crashes=2**31 - 1, most=0)
"""Suspects no run."""


class RunQueue(Protocol):
    """What workers take runs from; times are the database's, never the worker's."""

    async def claim(
        self, *, lease: timedelta, most: int, caution: Caution = TRUSTING
    ) -> Sequence[Claim]:
        """Take runs whose worker was lost, then waiting ones, one of each tenant in turn.

        Only the first unfinished run of a session is given out, to one worker at a time. Within a
        tenant the longest wait counts. Runs of sub-agents are given out by `ask` alone.

        Args:
            lease: how long they are held without being renewed.
            most: how many are taken at most.
            caution: which of those whose worker was lost are suspected.
        """

    async def context(self, claim: Claim) -> RunContext:
        """What the run begins, or goes on, with. Its agent stays as it was the first time.

        Raises:
            FencedError: the run is no longer this worker's.
            AgentDeletedError: its agent is gone.
        """

    def journal(self, claim: Claim) -> RunJournal:
        """The writes of whoever holds the claim."""

    async def ask(self, claim: Claim, task: Task, *, lease: timedelta) -> Claim | Answered:
        """Take the run of a sub-agent that a call of a held run asks for, accepted if it is new.

        One call has one run: asked again, by whoever holds the calling run by then, that one is
        taken as it stands, from whoever had it before, or what came of it is given. Its session is
        of the calling run's user and tenant.

        Args:
            claim: the hold on the calling run.
            task: what is asked; its text fits, as `domain.drafts` has it.
            lease: how long the run is held without being renewed.

        Raises:
            FencedError: the calling run is no longer this worker's, or was asked to stop.
            AgentDeletedError: its user sees no such agent; no run was accepted.
        """

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        """Hold them for another `lease` from now; those that are lost are missing in the answer."""

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        """How they stand, without a longer hold; those that are lost are missing in the answer."""

    async def hand_back(self, claim: Claim) -> None:
        """Let another worker go on with the run at once; does nothing if it is lost."""
