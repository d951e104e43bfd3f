"""How often a real model did what it was asked, to be told at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts by group and check, and lines for people.

    Attributes:
        write: takes a line at once, so that a long test shows how it goes.
        counts: how often it held and how often it was looked at, by group and check.
        notes: lines for the end.
    """

    write: Callable[[str], None]
    counts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, group: str, checks: Mapping[str, bool]) -> bool:
        """Adds one attempt; tells whether every check held."""
        counts = self.counts.setdefault(group, {})
        for name, held in checks.items():
            good, seen = counts.get(name, (0, 0))
            counts[name] = (good + held, seen + 1)
        return all(checks.values())

    def lines(self) -> list[str]:
        """Everything that was counted, a line per group, and the notes."""
        width = max(map(len, self.counts), default=0)
        return [
            *(f"{group:<{width}}  {_told(counts)}" for group, counts in self.counts.items()),
            *self.notes,
        ]


def _told(counts: Mapping[str, tuple[int, int]]) -> str:
    return "  ".join(f"{name} {good}/{seen}" for name, (good, seen) in counts.items())
