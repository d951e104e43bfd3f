"""How a part of the measurement tells its goals."""

from collections.abc import Sequence


def tell_goals(goal: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Print a table of what was measured with what is wanted beside it.

    Args:
        goal: its name.
        rows: what it is of, what was measured, what is wanted.
    """
    print(f"\n{goal:<56} {'ChatMind':>9} {'goal':>8}")
    for of, measured, wanted in rows:
        print(f"{of:<56} {measured:>9} {wanted:>8}")
