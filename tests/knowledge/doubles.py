"""Ports in this process: an embedder, a cutter and hints, each as simple as it can be."""

import asyncio
from collections.abc import Sequence

from services.common.bus.waiters import Waiters
from services.common.identity import Identity
from services.knowledge.domain.embedding import (
    Embedded,
    EmbeddedBatch,
    EmbeddingModel,
    NotEmbeddableError,
    Purpose,
    vector,
)
from services.knowledge.domain.errors import EmbeddingUnavailableError, UnknownEmbeddingModelError
from services.knowledge.domain.ingest.cutting import CutDocument, CutRequest, cut
from services.knowledge.domain.models import EmbeddingSpace
from tests.knowledge.fake_embedding import bigram_vector

SPACE = EmbeddingSpace("tiny", 8)


class MemoryEmbedder:
    """Embeds with character bigrams.

    Attributes:
        spaces: the models, the default first.
        digest: of their weights.
        unavailable: whether the service is away.
        poison: texts that hold it cannot be embedded; empty for none.
        names_faults: whether it tells which texts those were.
        max_chars: how much of a text is seen; 0 for all.
        counts_tokens: whether it tells what a text costs.
        calls: the texts of every call.
        gate: cleared, calls wait.
    """

    def __init__(self, *spaces: EmbeddingSpace) -> None:
        self.spaces = spaces or (SPACE,)
        self.digest = "weights-1"
        self.max_input_tokens = 512
        self.max_batch_size = 4
        self.unavailable = False
        self.poison = ""
        self.names_faults = True
        self.max_chars = 0
        self.counts_tokens = True
        self.calls: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    async def models(self, *, identity: Identity) -> tuple[EmbeddingModel, ...]:
        """See the port."""
        if self.unavailable:
            raise EmbeddingUnavailableError("away")
        return tuple(
            EmbeddingModel(
                space, self.max_input_tokens, self.max_batch_size, place == 0, self.digest
            )
            for place, space in enumerate(self.spaces)
        )

    async def embed(
        self, texts: Sequence[str], *, model: str, purpose: Purpose, identity: Identity
    ) -> EmbeddedBatch:
        """See the port."""
        self.entered.set()
        await self.gate.wait()
        if self.unavailable:
            raise EmbeddingUnavailableError("away")
        self.calls.append(list(texts))
        for space in self.spaces:
            if space.model == model:
                return self._batch(texts, space)
        raise UnknownEmbeddingModelError(model=model, known=[each.model for each in self.spaces])

    def _batch(self, texts: Sequence[str], space: EmbeddingSpace) -> EmbeddedBatch:
        bad = [i for i, text in enumerate(texts) if self.poison and self.poison in text]
        if bad:
            raise NotEmbeddableError(bad if self.names_faults else ())
        return EmbeddedBatch(space, self.digest, tuple(self._one(text, space) for text in texts))

    def _one(self, text: str, space: EmbeddingSpace) -> Embedded:
        seen = text[: self.max_chars] if self.max_chars else text
        components = vector(bigram_vector(seen, space.dimensions))
        tokens = len(text.split()) if self.counts_tokens else 0
        return Embedded(components, tokens, truncated=len(seen) < len(text))


class InlineCutter:
    """Cuts where it is called.

    Attributes:
        error: is raised instead, where it is set.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.requests: list[CutRequest] = []

    async def cut(self, request: CutRequest) -> CutDocument:
        """See the port."""
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return cut(request)


class LocalHints(Waiters):
    """Hints within this process; a `Listener` and a `Notifier`."""

    def __init__(self, *, poll: float = 0.2) -> None:
        super().__init__(poll=poll)
        self.notified: list[str] = []

    def notify(self, key: str) -> None:
        """See the port."""
        self.notified.append(key)
        self.pass_on([key])
