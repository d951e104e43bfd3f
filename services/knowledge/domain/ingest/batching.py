"""Which texts are embedded in one call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one call may carry.

    Attributes:
        texts: how many texts.
        tokens: how many tokens in all; a single text may have more.
    """

    texts: int
    tokens: int


def batches(costs: Sequence[int], limits: BatchLimits) -> Iterator[range]:
    """The positions of each batch, in order: as many texts as the limits allow, at least one.

    Args:
        costs: the tokens of each text.
        limits: of one batch.
    """
    start, spent = 0, 0
    for position, cost in enumerate(costs):
        full = position - start == limits.texts or spent + cost > limits.tokens
        if full and position > start:
            yield range(start, position)
            start, spent = position, 0
        spent += cost
    if start < len(costs):
        yield range(start, len(costs))
