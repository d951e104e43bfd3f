"""What the domain needs from the outside."""

from collections.abc import Sequence
from typing import Protocol

from services.embedding.domain.models import BackendState, ModelSpec, Outcome, Purpose


class Backend(Protocol):
    """One model at one engine."""

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        ...

    @property
    def state(self) -> BackendState:
        """How it was when last heard of; costs nothing to ask."""
        ...

    async def check(self) -> None:
        """Hear how it is now; never fails, the state tells."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """One call to the engine; gives one outcome for each text, in their order.

        Raises:
            TextsRefusedError: it refused the call as a whole.
            BackendUnavailableError: it could not be asked.
        """
        ...
