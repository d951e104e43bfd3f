"""Holds a history to what was promised, invariant by invariant; pure.

I1  what was acknowledged exists once; what was refused does not; nothing else does
I2  the messages of a session are numbered 1 … n without gaps
I3  what a subscriber received is the session's own list from its beginning: no gap, no repeat
I4  a run ends once, in one state, and says nothing after it
I5  every tool call has exactly one result, before the model is asked again
I6  what must not happen twice does not, and where it may not have happened that is said
I7  one run of a session is worked on at a time
I8  no run spends more than it may
I9  twice a lease after healing nothing is left lying
D3  every step of a run is recorded once
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from tests.chaos.history import FINAL, History, MessageRow, Outcome, Subscription

T = TypeVar("T")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        invariant: which one.
        told: how.
        rows: what shows it.
    """

    invariant: str
    told: str
    rows: Sequence[object] = ()

    def __str__(self) -> str:
        """The violation as the lines of a failure."""
        return "\n    ".join([f"{self.invariant}: {self.told}", *map(str, self.rows[:20])])


def violations(history: History) -> list[Violation]:
    """Every promise that the history breaks, in the order of the invariants."""
    return [found for check in _CHECKS for found in check(history)]


def accepted_once(history: History) -> Iterator[Violation]:
    """I1."""
    asked = _by(history.messages, lambda row: row.text, only=lambda row: row.role == "user")
    runs = Counter(run.id for run in history.runs)
    for submit in history.submits:
        found = asked.pop(submit.text, [])
        least, most = _expected(submit.outcome)
        if not least <= len(found) <= most:
            yield Violation("I1", f"is there {len(found)} times, and was {submit}", found)
        elif any(runs[row.run_id] != 1 for row in found):
            yield Violation("I1", f"has no run of its own: {submit}", found)
        elif submit.run_id and found and found[0].run_id != submit.run_id:
            yield Violation("I1", f"is another's than was acknowledged: {submit}", found)
    for text, rows in asked.items():
        yield Violation("I1", f"nobody sent {text!r}", rows)


def numbered_without_gaps(history: History) -> Iterator[Violation]:
    """I2."""
    for session_id, rows in _by(history.messages, lambda row: row.session_id).items():
        numbers = [row.sequence for row in rows]
        if numbers != list(range(1, len(rows) + 1)):
            yield Violation("I2", f"session {session_id} is numbered {numbers}", rows)


def delivered_in_order(history: History) -> Iterator[Violation]:
    """I3; as all is healed, the prefix is the whole list."""
    sessions = _by(history.messages, lambda row: row.session_id)
    for subscription in history.subscriptions:
        stored = [(row.sequence, row.id) for row in sessions.get(subscription.session_id, [])]
        received = [(each.sequence, each.message_id) for each in subscription.received]
        if received != stored:
            yield _misdelivered(subscription, stored, received)


def ended_once(history: History) -> Iterator[Violation]:
    """I4."""
    told: defaultdict[str, set[str]] = defaultdict(set)
    for subscription in history.subscriptions:
        for run_id, states in subscription.ended.items():
            told[run_id] |= states
    said = _by(history.messages, lambda row: row.run_id)
    for run in history.runs:
        rows = said.get(run.id, [])
        if run.state not in FINAL:
            yield Violation("I4", f"never ended: {run}", rows)
        elif told[run.id] - {run.state}:
            yield Violation("I4", f"ended as {told[run.id]}, too: {run}", rows)
        elif not _closed_well(rows):
            yield Violation("I4", f"speaks after its end, or has none: {run}", rows)


def answered_once(history: History) -> Iterator[Violation]:
    """I5."""
    for run_id, rows in _by(history.messages, lambda row: row.run_id).items():
        waiting: set[str] = set()
        for row in rows:
            if row.role == "tool":
                if row.call_id not in waiting:
                    yield Violation("I5", f"answers no open call: {row}", rows)
                    break
                waiting.remove(row.call_id)
            elif waiting:
                yield Violation("I5", f"{row.sequence} comes before the results {waiting}", rows)
                break
            else:
                waiting = set(row.calls)
        else:
            if waiting:
                yield Violation("I5", f"run {run_id} has no result of {waiting}", rows)


def done_at_most_once(history: History) -> Iterator[Violation]:
    """I6."""
    results = {
        (row.run_id, row.call_id): row for row in history.messages if row.call_id is not None
    }
    names = {
        (row.run_id, call_id): tool
        for row in history.messages
        for call_id, tool in row.calls.items()
    }
    effects = _by(history.effects, lambda effect: effect.call)
    for call, done in effects.items():
        if names.get(call) in history.once_only and len(done) > 1:
            yield Violation("I6", f"{call} was done {len(done)} times", done)
        elif len({effect.key for effect in done}) > 1:
            yield Violation("I6", f"{call} was done under several keys", done)
        elif call not in names:
            yield Violation("I6", "was done before it was recorded", done)
    for call, result in results.items():
        if result.error is None and call not in effects:
            yield Violation("I6", f"{call} is said to be done and never was", [result])


def held_alone(history: History) -> Iterator[Violation]:
    """I7."""
    for session_id, run_ids in history.held_together:
        yield Violation("I7", f"session {session_id} had several runs at work", list(run_ids))


def spent_within_limits(history: History) -> Iterator[Violation]:
    """I8."""
    for run in history.runs:
        if run.token_limit is not None and run.tokens > run.token_limit:
            yield Violation("I8", f"spent too much: {run}")


def nothing_stuck(history: History) -> Iterator[Violation]:
    """I9."""
    if history.stuck:
        yield Violation("I9", f"{len(history.stuck)} runs were left lying", history.stuck)


def recorded_once(history: History) -> Iterator[Violation]:
    """D3: the scripted model says which step it answers, so steps must count up from 0."""
    for run_id, rows in _by(history.messages, lambda row: row.run_id).items():
        spoken = [row for row in rows if row.role == "assistant" and not row.notice]
        steps = [row.text.rpartition("/")[2] for row in spoken]
        if steps != [str(number) for number in range(len(steps))]:
            yield Violation("D3", f"run {run_id} recorded the steps {steps}", rows)


_CHECKS: Sequence[Callable[[History], Iterator[Violation]]] = (
    accepted_once,
    numbered_without_gaps,
    delivered_in_order,
    ended_once,
    answered_once,
    done_at_most_once,
    held_alone,
    spent_within_limits,
    nothing_stuck,
    recorded_once,
)


def _expected(outcome: Outcome) -> tuple[int, int]:
    """How often a message may be there, at least and at most."""
    return {Outcome.OK: (1, 1), Outcome.FAIL: (0, 0), Outcome.UNKNOWN: (0, 1)}[outcome]


def _misdelivered(
    subscription: Subscription,
    stored: Sequence[tuple[int, str]],
    received: Sequence[tuple[int, str]],
) -> Violation:
    place = next(
        (i for i, (was, got) in enumerate(zip(stored, received, strict=False)) if was != got),
        min(len(stored), len(received)),
    )
    told = (
        f"{subscription.name} received {len(received)} of {len(stored)} messages of session "
        f"{subscription.session_id}, the same up to number {place}"
    )
    around = slice(max(place - 2, 0), place + 5)
    return Violation("I3", told, [("stored", stored[around]), ("received", received[around])])


def _closed_well(rows: Sequence[MessageRow]) -> bool:
    """Whether all that closes the run stands at its end, with one answer at most."""
    answers = [row for row in rows if row.closes and row.role == "assistant"]
    after = [later for row, later in pairwise(rows) if row.closes and not later.closes]
    return bool(rows) and rows[-1].closes and not after and len(answers) <= 1


def _by(
    rows: Sequence[T], key: Callable[[T], Key], *, only: Callable[[T], bool] = lambda _: True
) -> dict[Key, list[T]]:
    groups: dict[Key, list[T]] = {}
    for row in rows:
        if only(row):
            groups.setdefault(key(row), []).append(row)
    return groups
