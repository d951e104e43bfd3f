"""What a run's model processed, as columns."""

from typing import Final, Literal

from asyncpg import Record

from services.agent.domain.run_models import Cost, Usage

USAGE: Final = """
run.input_tokens, run.output_tokens, run.cached_input_tokens, run.reasoning_tokens,
run.cost_currency, run.cost_nanos
"""
"""The columns of a run."""

SUB_USAGE: Final = """
run.sub_input_tokens, run.sub_output_tokens, run.sub_cached_input_tokens, run.sub_reasoning_tokens,
run.sub_cost_currency, run.sub_cost_nanos
"""
"""The same of its sub-agents."""

HELD: Final = """
input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, cost_currency, cost_nanos
"""
"""The same of what is added, which a statement calls `held`; their values are `values`."""

ADDED: Final = """
input_tokens = run.input_tokens + held.input_tokens,
output_tokens = run.output_tokens + held.output_tokens,
cached_input_tokens = run.cached_input_tokens + held.cached_input_tokens,
reasoning_tokens = run.reasoning_tokens + held.reasoning_tokens,
cost_currency = coalesce(held.cost_currency, run.cost_currency),
cost_nanos = CASE WHEN held.cost_currency = run.cost_currency
    THEN run.cost_nanos + held.cost_nanos ELSE coalesce(held.cost_nanos, run.cost_nanos) END
"""
"""The assignments that add them, as `Usage.__add__` does."""


SUBS_COUNTED: Final = """
sub_input_tokens = subs.input_tokens, sub_output_tokens = subs.output_tokens,
sub_cached_input_tokens = subs.cached_input_tokens, sub_reasoning_tokens = subs.reasoning_tokens,
sub_cost_currency = subs.cost_currency,
sub_cost_nanos = CASE WHEN subs.cost_currency IS NOT NULL THEN subs.cost_nanos END,
sub_tool_calls = subs.tool_calls
"""
"""The assignments that bring up to date what its sub-agents have used, which is called `subs`."""


def values(usage: Usage) -> tuple[int | str | None, ...]:
    """What is added, as bigint four times, text and bigint."""
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_input_tokens,
        usage.reasoning_tokens,
        None if usage.cost is None else usage.cost.currency,
        None if usage.cost is None else usage.cost.nanos,
    )


def usage_of(row: Record, *, prefix: Literal["", "sub_"] = "") -> Usage:
    """A row with the columns `USAGE`, or `SUB_USAGE`."""
    currency = row[f"{prefix}cost_currency"]
    return Usage(
        row[f"{prefix}input_tokens"],
        row[f"{prefix}output_tokens"],
        row[f"{prefix}cached_input_tokens"],
        row[f"{prefix}reasoning_tokens"],
        None if currency is None else Cost(currency, row[f"{prefix}cost_nanos"]),
    )
