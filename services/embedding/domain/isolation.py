"""Finds the texts that make an engine refuse a call, so that the others still get their vectors.

bge-m3 on Ollama computes NaN for certain texts, which fails the whole call each time it is tried.
The engine is asked for a harmless text first: if that fails as well, the texts are not to blame.
Then the call is split in halves until the guilty texts stand alone. That makes at most 2n calls for
n texts, whoever is guilty, and about 2 log2(n) where one of them is.
"""

from collections.abc import Sequence

from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.models import Fault, Outcome, Purpose, Vector
from services.embedding.domain.ports import Backend

CONTROL_TEXT = "A plain sentence that every model can read."


async def embed_each(backend: Backend, texts: Sequence[str], *, purpose: Purpose) -> list[Outcome]:
    """One outcome for each text, in their order; a refused text is a fault and hurts no other.

    Raises:
        BackendUnavailableError: the backend could not be asked, or fails whatever it is asked.
    """
    try:
        return await backend.embed(texts, purpose)
    except TextsRefusedError as refusal:
        await _control(backend, refusal, purpose=purpose)
        return await _halved(backend, texts, purpose=purpose, refusal=refusal)


async def _control(backend: Backend, refusal: TextsRefusedError, *, purpose: Purpose) -> None:
    why = f"it fails on a plain sentence too ({refusal.received})"
    try:
        outcome = (await backend.embed([CONTROL_TEXT], purpose))[0]
    except TextsRefusedError:
        raise BackendUnavailableError(backend.spec, why) from refusal
    if not isinstance(outcome, Vector):
        raise BackendUnavailableError(backend.spec, why) from refusal


async def _halved(
    backend: Backend, texts: Sequence[str], *, purpose: Purpose, refusal: TextsRefusedError
) -> list[Outcome]:
    if len(texts) == 1:
        return [Fault("a vector", refusal.received)]
    found: list[Outcome] = []
    middle = len(texts) // 2
    for half in (texts[:middle], texts[middle:]):
        try:
            found += await backend.embed(half, purpose)
        except TextsRefusedError as again:
            found += await _halved(backend, half, purpose=purpose, refusal=again)
    return found
