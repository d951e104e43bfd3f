"""Finds the first thing in which a replay differs from the record. Pure.

What cannot be the same is not compared: ids, times, and how often the model was asked, as replies
with nothing in them leave no message.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from typing import Final

from services.agent.domain.messages import Draft, Message
from services.agent.domain.replay.recorded import driven
from services.agent.domain.replay.recording import Outcome, Recording
from services.agent.domain.run_models import Offered, Run, StopReason

MOST_CHARS: Final = 4000
"""How much of a value is told."""

_COMPARED_METADATA: Final = ("error", "notice", "citation_basis")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that came out differently.

    Attributes:
        path: what it is, such as "messages[3].text"; messages are counted from 0, the user's.
        recorded: how it was stored, as text or JSON, cut; empty where there was nothing.
        replayed: how it came out; empty where nothing came.
        sequence: of the stored message in question; 0 where it is none.
    """

    path: str
    recorded: str
    replayed: str
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a replay.

    Attributes:
        run: as it was stored.
        difference: the first one; None where nothing differs.
        compared_messages: how many after the user's came out alike.
        end: why the replay ended; None where its end was not driven.
    """

    run: Run
    difference: Difference | None
    compared_messages: int
    end: StopReason | None


def compare(recording: Recording, outcome: Outcome, *, ended: bool) -> Replay:
    """The replay beside the record.

    Args:
        recording: the run as it was stored.
        outcome: what the replay wrote.
        ended: whether it came to an end of its own; if not, it is compared as far as the record
            goes.
    """
    recorded, replayed = driven(recording)[1:], outcome.messages[1:]
    if not ended:
        replayed = replayed[: len(recorded)]
    alike = 0
    for one, other in zip(recorded, replayed, strict=False):
        if next(_of_message(one, other, ""), None) is not None:
            break
        alike += 1
    found = _differences(recording, outcome, recorded, replayed, ended=ended)
    end = outcome.run.stop_reason if ended else None
    return Replay(recording.run, next(found, None), alike, end)


def _differences(
    recording: Recording,
    outcome: Outcome,
    recorded: Sequence[Message],
    replayed: Sequence[Message],
    *,
    ended: bool,
) -> Iterator[Difference]:
    then, now = recording.run, outcome.run
    if then.offered is not None:
        yield from _of_offered(then.offered, now.offered)
    for place, (one, other) in enumerate(zip_longest(recorded, replayed), start=1):
        yield from _of_messages(one, other, f"messages[{place}]")
    if ended:
        yield from _of_ends(then, now)


def _of_offered(then: Offered, now: Offered | None) -> Iterator[Difference]:
    for field in fields(Offered):
        yield from _of_values(
            f"offered.{field.name}", getattr(then, field.name), getattr(now, field.name, None)
        )


def _of_ends(then: Run, now: Run) -> Iterator[Difference]:
    yield from _of_values("state", then.state.name, now.state.name)
    yield from _of_values("stop_reason", _name(then.stop_reason), _name(now.stop_reason))
    reasons = [run.error.reason if run.error else None for run in (then, now)]
    yield from _of_values("error.reason", *reasons)


def _name(reason: StopReason | None) -> str | None:
    return None if reason is None else reason.name


def _of_messages(one: Message | None, other: Message | None, path: str) -> Iterator[Difference]:
    if one is not None and other is not None:
        yield from _of_message(one, other, path)
    else:
        sequence = 0 if one is None else one.sequence
        yield Difference(path, _whole(one), _whole(other), sequence)


def _of_message(one: Message, other: Draft, path: str) -> Iterator[Difference]:
    for name, then, now in _pairs(one, other):
        yield from _of_values(f"{path}.{name}", then, now, sequence=one.sequence)


def _pairs(one: Draft, other: Draft) -> Iterator[tuple[str, object, object]]:
    yield "role", one.role.name, other.role.name
    for name in ("text", "tool_call_id", "tool_name"):
        yield name, getattr(one, name), getattr(other, name)
    for name in ("tool_calls", "citations"):
        for place, (then, now) in enumerate(zip_longest(getattr(one, name), getattr(other, name))):
            yield f"{name}[{place}]", then and asdict(then), now and asdict(now)
    for key in _COMPARED_METADATA:
        yield f"metadata.{key}", one.metadata.get(key), other.metadata.get(key)


def _of_values(path: str, then: object, now: object, *, sequence: int = 0) -> Iterator[Difference]:
    if then != now:
        yield Difference(path, _told(then), _told(now), sequence)


def _whole(message: Draft | None) -> str:
    if message is None:
        return ""
    calls = [asdict(call) for call in message.tool_calls]
    said = {"role": message.role.name, "text": message.text, "tool_calls": calls}
    return _told({key: value for key, value in said.items() if value})


def _told(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} …"
