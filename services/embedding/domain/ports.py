"""What the domain needs from outside."""

from collections.abc import Sequence
from typing import Protocol

from services.embedding.domain.models import BackendState, ModelSpec, Outcome, Purpose


class Backend(Protocol):
    """One model of one engine."""

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        ...

    @property
    def state(self) -> BackendState:
        """The last known state; reading it costs nothing."""
        ...

    async def check(self) -> None:
        """Bring the state up to date; never fails, a failure shows in the state."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """Make one call to the engine; returns one outcome for each text, in order.

        Raises:
            TextsRefusedError: the engine refused the call as a whole.
            BackendUnavailableError: the engine could not be reached.
        """
        ...
