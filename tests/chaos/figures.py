"""What a campaign did and cost, and what it must have done at least to prove anything; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from tests.chaos.checker import Violation

LEAST_OK = 0.95
MOST_WASTE = 0.05
MOST_RESUME_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a campaign did.

    Attributes:
        runs: that were acknowledged.
        messages: that were committed.
        kills: SIGKILLs of workers.
        crashes: times that a run lost its worker.
        freezes: SIGSTOPs of workers past their lease.
        fenced: late writes that were refused, by the workers' logs.
        replica_kills: SIGKILLs of gateways and of replicas that answer calls.
        postgres_kills: SIGKILLs of PostgreSQL.
        subscribers: that followed sessions.
        fewest_cuts: of the subscriber that was cut least often.
        tool_calls: with a result.
        unknown_calls: whose outcome is unknown.
        refused: messages that their session was too busy for.
        cancelled: runs that a user stopped.
        interrupted: runs that made way for a later message.
        model_calls: that the runs needed.
        wasted_calls: that were made again because their answer got lost.
        probes: calls that were made once all was healed.
        probes_ok: those of them that went well.
        samples: looks at which runs are held.
        slowest_resume: seconds from PostgreSQL accepting again to the next message.
        seconds: it all took.
    """

    runs: int
    messages: int
    kills: int
    crashes: int
    freezes: int
    fenced: int
    replica_kills: int
    postgres_kills: int
    subscribers: int
    fewest_cuts: int
    tool_calls: int
    unknown_calls: int
    refused: int
    cancelled: int
    interrupted: int
    model_calls: int
    wasted_calls: int
    probes: int
    probes_ok: int
    samples: int
    slowest_resume: float
    seconds: float

    @property
    def waste(self) -> float:
        """The share of model calls that were wasted."""
        return self.wasted_calls / max(self.model_calls, 1)

    @property
    def ok(self) -> float:
        """The share of probes that went well."""
        return self.probes_ok / max(self.probes, 1)


def vacuous(figures: Figures, least: Mapping[str, int]) -> Iterator[Violation]:
    """Why the campaign proves nothing: too little happened, or hardly anything worked after.

    Args:
        figures: of the campaign.
        least: names of figures, and what each must be at least.
    """
    for name, wanted in least.items():
        if (got := getattr(figures, name)) < wanted:
            yield Violation("vacuous", f"{name} is {got} and should be {wanted} at least")
    if figures.ok < LEAST_OK:
        yield Violation("vacuous", f"only {figures.ok:.1%} of {figures.probes} calls went well")


def costly(figures: Figures) -> Iterator[Violation]:
    """Where surviving cost more than it may."""
    if figures.waste > MOST_WASTE:
        told = f"{figures.wasted_calls} of {figures.model_calls} model calls were wasted"
        yield Violation("waste", told)
    if figures.slowest_resume > MOST_RESUME_SECONDS:
        told = f"work went on {figures.slowest_resume:.1f} s after PostgreSQL did"
        yield Violation("resume", told)


def wasted(calls: Mapping[tuple[str, int], int]) -> int:
    """Model calls that repeat another, of how often each step of each run was asked for."""
    return sum(times - 1 for times in calls.values())


def slowest_resume(accepted: Sequence[float], committed: Sequence[float]) -> float:
    """The longest time from PostgreSQL accepting connections to the next committed message.

    Args:
        accepted: when it did, in seconds.
        committed: when messages were, by the same clock.
    """
    waits = [min((at - up for at in committed if at > up), default=0.0) for up in accepted]
    return max(waits, default=0.0)


def table(figures: Figures) -> str:
    """The figures for people."""
    rows = [(each.name.replace("_", " "), getattr(figures, each.name)) for each in fields(Figures)]
    rows += [("waste", f"{figures.waste:.1%}"), ("ok after healing", f"{figures.ok:.1%}")]
    return "\n".join(f"    {name:<18} {_shown(value):>10}" for name, value in rows)


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
