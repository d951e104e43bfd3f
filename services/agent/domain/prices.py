"""What calls of a model cost. Pure, and in whole numbers."""

from dataclasses import dataclass, replace
from typing import Final

from services.agent.domain.run_models import Cost, Usage

PER: Final = 1_000_000
"""Prices are for so many tokens."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in billionths of a unit of the currency.

    Attributes:
        currency: in the three letters of ISO 4217.
        input_nanos: what is read.
        cached_input_nanos: what is read and was read before.
        output_nanos: what is written, thoughts included.
    """

    currency: str
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int


def priced(usage: Usage, prices: Prices | None) -> Usage:
    """The usage with what it costs, to the nearest billionth, where prices are known."""
    if prices is None:
        return usage
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    millionfold = (
        (usage.input_tokens - cached) * prices.input_nanos
        + cached * prices.cached_input_nanos
        + usage.output_tokens * prices.output_nanos
    )
    return replace(usage, cost=Cost(prices.currency, (millionfold + PER // 2) // PER))
