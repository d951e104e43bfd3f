"""A backend in memory, for tests of what happens before a backend is asked."""

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np

from services.embedding.domain.checks import unit
from services.embedding.domain.errors import TextsRefusedError
from services.embedding.domain.models import (
    BackendKind,
    BackendState,
    ModelName,
    ModelSpec,
    Outcome,
    Purpose,
)

SPEC = ModelSpec(
    name=ModelName("toy"),
    kind=BackendKind.BUNDLED,
    dimensions=8,
    max_input_tokens=100,
    max_batch_size=50,
)


def toy_numbers(text: str) -> list[float]:
    """Numbers that only depend on the text, as an engine would send them."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 7 + 1 for byte in digest[: SPEC.dimensions]]


def toy_vector(text: str) -> Outcome:
    """The vector of these numbers."""
    return unit(np.array(toy_numbers(text)))


class MemoryBackend:
    """Embeds by hash; refuses calls with a text that holds "poison"; can be held and be broken.

    Attributes:
        calls: the texts and purpose of every call, in the order they began.
        broken: raised by every call while set.
        gate: calls wait until it is set, which it is at first.
        begun: how many calls have begun, awaited by `until_begun`.
    """

    def __init__(self, spec: ModelSpec = SPEC) -> None:
        self.spec = spec
        self.state = BackendState(ready=True, digest="sha256:toy")
        self.calls: list[tuple[list[str], Purpose]] = []
        self.broken: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._begun = asyncio.Condition()

    async def check(self) -> None:
        """Nothing to hear."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """One outcome for each text."""
        async with self._begun:
            self.calls.append((list(texts), purpose))
            self._begun.notify_all()
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        if any("poison" in text for text in texts):
            raise TextsRefusedError("HTTP 500")
        return [toy_vector(text) for text in texts]

    async def until_begun(self, calls: int) -> None:
        """Waits until so many calls have begun."""
        async with asyncio.timeout(10), self._begun:
            await self._begun.wait_for(lambda: len(self.calls) >= calls)
