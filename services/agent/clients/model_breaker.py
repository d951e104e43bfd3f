"""When an endpoint that fails is asked, and when it is left alone. Pure.

    CLOSED ── failures in a row, or a wish of the server ──▶ OPEN ── its rest is over ──▶ HALF_OPEN
       ▲                                                      ▲                              │
       │                                                      └────────── it fails ──────────┤
       └───────────────────────────── it answers ────────────────────────────────────────────┘

In HALF_OPEN one call is let through as a probe, which decides for all. A breaker is a value: what
happens to it makes a new one. Times are seconds of one monotonic clock, passed in.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

_MOST_DOUBLINGS: Final = 30


class BreakerState(Enum):
    """Whether an endpoint is asked."""

    CLOSED = auto()
    OPEN = auto()
    HALF_OPEN = auto()


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When an endpoint is left alone, and for how long.

    Attributes:
        failures: in a row, after which it rests; more than one call makes by itself.
        rest_seconds: the longest first rest; doubled each time a probe fails.
        most_seconds: the longest rest that it gets without asking for more, and the time after
            which a probe that has no outcome yet keeps others from probing no longer.
    """

    failures: int = 5
    rest_seconds: float = 1.0
    most_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Pass:
    """A call that was let through.

    Attributes:
        period: in which it was; once another has begun, what comes of it says nothing of the
            endpoint as it is now.
        probe: its number among the probes; 0 while CLOSED.
    """

    period: int
    probe: int = 0


@dataclass(frozen=True, slots=True)
class Breaker:
    """What is known of one endpoint.

    Attributes:
        policy: when it is left alone.
        period: a number; another period begins with each rest.
        failures: in a row, while CLOSED.
        rests: since it last answered.
        until: when it may be asked next; None while CLOSED.
        probe: the newest one under way; 0 if there is none.
        probes: how many there have been.
    """

    policy: BreakerPolicy = BreakerPolicy()
    period: int = 0
    failures: int = 0
    rests: int = 0
    until: float | None = None
    probe: int = 0
    probes: int = 0

    @property
    def state(self) -> BreakerState:
        """Where it stands."""
        if self.until is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self.probe else BreakerState.OPEN

    def wait(self, now: float) -> float:
        """Seconds until a call may be let through; 0 if one may at once."""
        return 0.0 if self.until is None else max(self.until - now, 0.0)

    def admit(self, now: float) -> "tuple[Breaker, Pass] | None":
        """The breaker after a call was let through, and its pass; None if none may be."""
        if self.until is None:
            return self, Pass(self.period)
        if now < self.until:
            return None
        probe = self.probes + 1
        until = now + self.policy.most_seconds
        return replace(self, until=until, probe=probe, probes=probe), Pass(self.period, probe)

    def answered(self, passed: Pass) -> "Breaker":
        """After a call was answered, if only with a refusal."""
        if passed.period != self.period:
            return self
        return Breaker(self.policy, self.period, probes=self.probes)

    def failed(
        self, passed: Pass, now: float, *, asked: float = 0.0, spread: float = 1.0
    ) -> "Breaker":
        """After a call failed.

        Args:
            passed: the call's.
            now: the time.
            asked: seconds for which the server asks to be left alone; they are kept whichever
                call was told of them.
            spread: from 0 to 1, at random, so that processes do not probe at the same instant.
        """
        after = self._counted(now, spread) if passed.period == self.period else self
        if asked <= 0:
            return after
        rest_until = after.until if after.until is not None and not after.probe else now
        return _resting(after, max(rest_until, now + asked))

    def given_back(self, passed: Pass, now: float) -> "Breaker":
        """After a call was dropped without an outcome; if it was the probe, another may be."""
        if passed.period != self.period or passed.probe != self.probe or not self.probe:
            return self
        return replace(self, until=now, probe=0)

    def _counted(self, now: float, spread: float) -> "Breaker":
        if self.until is None and self.failures + 1 < self.policy.failures:
            return replace(self, failures=self.failures + 1)
        longest = self.policy.rest_seconds * 2.0 ** min(self.rests, _MOST_DOUBLINGS)
        rest = min(longest, self.policy.most_seconds) * (1 + spread) / 2
        return _resting(replace(self, rests=self.rests + 1), now + rest)


def _resting(breaker: Breaker, until: float) -> Breaker:
    return replace(breaker, period=breaker.period + 1, failures=0, until=until, probe=0)
