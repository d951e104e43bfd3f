"""Finds the texts that make an engine refuse a call, so that the others still get their vectors.

bge-m3 on Ollama computes NaN for certain texts, which fails the whole call every time. First a
harmless text is embedded: if that fails too, the texts are not to blame. Then the call is halved
until the bad texts stand alone. This takes at most 2n calls for n texts, and about 2 log2(n) when
only one of them is bad.
"""

from collections.abc import Sequence

from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from services.embedding.domain.models import Fault, Outcome, Purpose, Vector
from services.embedding.domain.ports import Backend

CONTROL_TEXT = "A plain sentence that every model can read."


async def embed_each(backend: Backend, texts: Sequence[str], *, purpose: Purpose) -> list[Outcome]:
    """One outcome for each text, in order; a refused text becomes a fault and affects no other.

    Raises:
        BackendUnavailableError: the backend could not be reached, or fails for every text.
    """
    try:
        return await backend.embed(texts, purpose)
    except TextsRefusedError as refusal:
        await _check_control_text(backend, refusal, purpose=purpose)
        return await _halved(backend, texts, purpose=purpose, refusal=refusal)


async def _check_control_text(
    backend: Backend, refusal: TextsRefusedError, *, purpose: Purpose
) -> None:
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
