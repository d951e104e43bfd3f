"""A run in a worker's hands, until it is decided what becomes of it."""

import asyncio
from dataclasses import dataclass, field

from services.agent.domain.outcome import Outcome
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Claim


@dataclass(slots=True, eq=False)
class Held:
    """A run in hand.

    Attributes:
        claim: the hold.
        journal: its writes.
        until: the monotonic time at which the lease may have lapsed.
        outcome: what becomes of it; the first decision holds.
    """

    claim: Claim
    journal: RunJournal
    until: float
    outcome: Outcome | None = None
    _decided: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def lapsed(self) -> bool:
        """Whether its lease may have lapsed; nothing is written any more then."""
        return asyncio.get_running_loop().time() >= self.until

    def decide(self, outcome: Outcome) -> None:
        """Let this become of it, unless something else was decided before."""
        self.outcome = self.outcome or outcome
        self._decided.set()

    async def decided(self) -> Outcome:
        """What becomes of it, once that is decided: LOST when the lease lapses before."""
        while self.outcome is None:
            try:
                async with asyncio.timeout_at(self.until):
                    await self._decided.wait()
            except TimeoutError:
                if self.lapsed:
                    self.decide(Outcome.LOST)
        return self.outcome
