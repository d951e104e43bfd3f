"""Texts that wait for a backend, handed out fairly: nobody waits for another caller's bulk.

Callers take turns: a batch takes as many of the first caller's texts as fit, then of the next
caller's. A caller with texts left goes to the end of the line.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.embedding.domain.models import BatchLimits, Outcome


@dataclass(slots=True, eq=False)
class Job:
    """The texts of one caller and their outcomes so far.

    Attributes:
        texts: in the caller's order.
        done: resolves to one outcome for each text, or fails with the error that hit them all.
        dealt: how many texts, counted from the first, have left the queue.
    """

    texts: Sequence[str]
    done: "asyncio.Future[list[Outcome]]"
    dealt: int = 0
    _outcomes: dict[int, Outcome] = field(default_factory=dict)

    def settle(self, start: int, outcomes: Sequence[Outcome]) -> None:
        """Record the outcomes of the texts from `start` on; the last ones complete the job."""
        self._outcomes.update(enumerate(outcomes, start))
        if len(self._outcomes) == len(self.texts) and not self.done.done():
            self.done.set_result([self._outcomes[index] for index in range(len(self.texts))])

    def fail(self, error: Exception) -> None:
        """End the job with an error, unless it has ended already."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive texts of one job in a batch: `job.texts[start:stop]`."""

    job: Job
    start: int
    stop: int

    @property
    def texts(self) -> Sequence[str]:
        """The texts."""
        return self.job.texts[self.start : self.stop]


class BatchRoom:
    """What the limits leave of one batch."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._texts = 0
        self._chars = 0
        self._alone = False

    def fill(self, texts: Sequence[str], start: int) -> int:
        """Add texts from `start` on while they fit; returns the index of the first left out.

        The first text of a batch fits whatever its length.
        """
        stop = start
        while stop < len(texts) and self._add(len(texts[stop])):
            stop += 1
        return stop

    def _add(self, chars: int) -> bool:
        limits = self._limits
        alone = chars > limits.alone_above
        if self._texts and (
            alone
            or self._alone
            or self._texts == limits.max_texts
            or self._chars + chars > limits.max_chars
        ):
            return False
        self._texts += 1
        self._chars += chars
        self._alone = alone
        return True


class TextQueue:
    """The jobs that still have texts waiting.

    Attributes:
        texts: how many texts wait.
        chars: how many characters they have together.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._jobs: OrderedDict[Job, None] = OrderedDict()
        self.texts = 0
        self.chars = 0

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        """Put a job at the end of the line.

        Args:
            job: has at least one text.
        """
        self._jobs[job] = None
        self._count(job.texts, 1)

    def drop(self, job: Job) -> None:
        """Remove what is left of a job, if anything."""
        if job in self._jobs:
            del self._jobs[job]
            self._count(job.texts[job.dealt :], -1)

    def take(self) -> list[Slice]:
        """Remove and return the next batch; empty if nothing waits."""
        slices: list[Slice] = []
        room = BatchRoom(self._limits)
        while self._jobs:
            job = next(iter(self._jobs))
            dealt = Slice(job, job.dealt, room.fill(job.texts, job.dealt))
            if dealt.texts:
                slices.append(dealt)
                self._count(dealt.texts, -1)
                job.dealt = dealt.stop
            if job.dealt < len(job.texts):
                if dealt.texts:
                    self._jobs.move_to_end(job)
                break
            del self._jobs[job]
        return slices

    def _count(self, texts: Sequence[str], sign: int) -> None:
        self.texts += sign * len(texts)
        self.chars += sign * sum(map(len, texts))
