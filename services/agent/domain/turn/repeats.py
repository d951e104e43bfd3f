"""Notices a model that keeps asking for the same tool call. Pure.

Calls are equal when they name the same tool and their arguments are the same JSON value, however
it is written; arguments that are no JSON are equal when their text is. A row goes on for as long
as every reply asks for nothing but calls that the row holds; a reply that brings another is other
work and begins a new one. Calls that stand side by side in one reply count one by one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId

MOST_EQUAL_CALLS: Final = 3
"""How many equal calls of a row are executed; the next is answered with a notice instead."""

CallKey: TypeAlias = tuple[str, str]
"""What equal calls have in common: the tool's name, and the arguments in one spelling."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a model has been asking for without asking for anything else.

    Attributes:
        counts: how often it asked for each call.
        last: the call that it asked for last.
        streak: how often it did so, with no other call between.
        insisted: whether its last reply asked again for a call that a notice had answered before.
    """

    counts: Mapping[CallKey, int] = field(default_factory=dict)
    last: CallKey | None = None
    streak: int = 0
    insisted: bool = False

    def then(self, calls: Sequence[ToolCall]) -> tuple["Row", frozenset[ToolCallId]]:
        """The row after another reply, and those of its calls that are not to be executed.

        Args:
            calls: of the reply, in order, their ids unique.
        """
        keys = [call_key(call) for call in calls]
        goes_on = all(key in self.counts for key in keys)
        before = self.counts if goes_on else self._begun_with(keys[0])
        counts, refused = dict(before), set[ToolCallId]()
        last, streak = self.last, self.streak
        for call, key in zip(calls, keys, strict=True):
            counts[key] = counts.get(key, 0) + 1
            last, streak = key, streak + 1 if key == last else 1
            if counts[key] > MOST_EQUAL_CALLS:
                refused.add(call.id)
        insisted = goes_on and any(before[key] > MOST_EQUAL_CALLS for key in keys)
        return Row(counts, last, streak, insisted), frozenset(refused)

    def _begun_with(self, key: CallKey) -> Mapping[CallKey, int]:
        """What counts in a new row: nothing, but for a call that comes right after its equals."""
        return {key: self.streak} if key == self.last else {}


def call_key(call: ToolCall) -> CallKey:
    """What the call has in common with all calls that are equal to it."""
    text = call.arguments_json.strip() or "{}"
    try:
        value = json.loads(text, parse_float=_number)
        return call.name, json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, text


def _number(text: str) -> int | float:
    """A number that is whole is the same with a point as without, as JSON Schema has it."""
    value = float(text)
    return int(value) if value.is_integer() else value
