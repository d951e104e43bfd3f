"""What counts as a vector: an engine's answer is checked before it is used.

A fault in one vector concerns its text only. A wrong number of vectors, or vectors of another size,
spoil the whole answer: it is no longer clear which vector belongs to which text, or which model
computed it.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from services.embedding.domain.models import Fault, Outcome, Vector

_SMALLEST_NORM = 1e-12


def outcomes(rows: object, *, count: int, dimensions: int) -> list[Outcome]:
    """One outcome for each of `count` texts, from the rows of an answer as parsed from JSON.

    Args:
        rows: should be `count` lists of `dimensions` numbers.
        count: how many texts were sent.
        dimensions: numbers in each vector.
    """
    if not isinstance(rows, list):
        return [Fault("a list of vectors", _kind(rows))] * count
    if whole := _fault_of_all(rows, count=count, dimensions=dimensions):
        return [whole] * count
    return [_outcome(row, dimensions) for row in rows]


def outcomes_by_index(items: object, *, count: int, dimensions: int) -> list[Outcome]:
    """As `outcomes`, from `{"index": …, "embedding": …}` items in any order.

    If no item has an index, their own order counts.
    """
    if not isinstance(items, list):
        return [Fault("a list of vectors", _kind(items))] * count
    numbered = [each if isinstance(each, dict) else {} for each in items]
    indexes = [each.get("index") for each in numbered]
    rows = [each.get("embedding") for each in numbered]
    if len(items) == count and any(each is not None for each in indexes):
        if any(type(each) is not int for each in indexes) or set(indexes) != set(range(count)):
            return [Fault(f"each index from 0 to {count - 1} once", _listed(indexes))] * count
        rows = [row for _, row in sorted(zip(indexes, rows, strict=True), key=itemgetter(0))]
    return outcomes(rows, count=count, dimensions=dimensions)


def unit(row: NDArray[np.floating]) -> Outcome:
    """The row scaled to unit length, or the fault that makes this impossible."""
    wide = row.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(wide))
    if not np.isfinite(norm):
        return Fault("finite numbers", _unbounded(wide))
    if norm < _SMALLEST_NORM:
        return Fault("a direction", "only zeros")
    return Vector((wide / norm).astype(np.float32))


def _fault_of_all(rows: list[object], *, count: int, dimensions: int) -> Fault | None:
    if len(rows) != count:
        return Fault(_plural(count, "vector"), _plural(len(rows), "vector"))
    sizes = (len(row) for row in rows if isinstance(row, list) and row)
    other = next((size for size in sizes if size != dimensions), None)
    if other is not None:
        return Fault(_plural(dimensions, "number"), _plural(other, "number"))
    return None


def _outcome(row: object, dimensions: int) -> Outcome:
    if not isinstance(row, list) or not row:
        received = "no numbers" if row == [] else _kind(row)
        return Fault(_plural(dimensions, "number"), received)
    if not _numbers(row):
        odd = next(each for each in row if type(each) not in {int, float})
        return Fault("numbers only", _kind(odd))
    try:
        return unit(np.asarray(row, dtype=np.float64))
    except OverflowError:
        return Fault("finite numbers", "a number too large")


def _numbers(row: Sequence[object]) -> TypeGuard[Sequence[float]]:
    # By exact type: isinstance takes bool for int, and NumPy would read "NaN" and None as numbers.
    return set(map(type, row)) <= {int, float}


def _unbounded(row: NDArray[np.float64]) -> str:
    if np.isnan(row).any():
        return "NaN"
    return "infinity" if np.isinf(row).any() else "numbers too large"


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _listed(indexes: Sequence[object]) -> str:
    shown = ", ".join(str(each) if type(each) is int else _kind(each) for each in indexes[:8])
    return f"{shown}, …" if len(indexes) > 8 else shown


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
