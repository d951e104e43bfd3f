"""Notices a model that keeps asking for the same tool call. Pure.

Calls are equal when they name the same tool and would call it with the same arguments, once what is
not quite right in them is mended. Where they would not call it at all, they are equal when they are
the same JSON value, however it is written, or else the same text. A row goes on for as long
as every reply asks for nothing but calls that the row holds; a reply that brings another is other
work and begins a new one. Calls that stand side by side in one reply count one by one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from services.agent.domain.chat import ToolSpec
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments

MOST_EQUAL_CALLS: Final = 3
"""How many equal calls of a row are executed; the next is answered with a notice instead."""

CallKey: TypeAlias = tuple[str, str]
"""What equal calls have in common: the tool's name, and the arguments in one spelling."""


Keys: TypeAlias = Callable[[ToolCall], CallKey]
"""Tells what calls have in common."""


def call_key(call: ToolCall) -> CallKey:
    """What the call, as it is written, has in common with all calls that are equal to it."""
    text = call.arguments_json.strip() or "{}"
    try:
        return call.name, _spelled(text)
    except (ValueError, RecursionError):
        return call.name, text


def keys_of(specs: Mapping[str, ToolSpec]) -> Keys:
    """Keys of calls as these tools would be called, what can be mended mended.

    Args:
        specs: by name.
    """

    def key(call: ToolCall) -> CallKey:
        spec = specs.get(call.name)
        if spec is None:
            return call_key(call)
        try:
            values = read_arguments(call.arguments_json, spec).values
            return call.name, _spelled(json.dumps(values))
        except (ArgumentsError, RecursionError):
            return call_key(call)

    return key


@dataclass(frozen=True, slots=True)
class Row:
    """What a model has been asking for without asking for anything else.

    Attributes:
        counts: how often it asked for each call.
        last: the call that it asked for last.
        streak: how often it did so, with no other call between.
        insisted: whether its last reply asked again for a call that a notice had answered before.
        key: tells which calls are equal.
    """

    counts: Mapping[CallKey, int] = field(default_factory=dict)
    last: CallKey | None = None
    streak: int = 0
    insisted: bool = False
    key: Keys = field(default=call_key, compare=False)

    def then(self, calls: Sequence[ToolCall]) -> tuple["Row", frozenset[ToolCallId]]:
        """The row after another reply, and those of its calls that are not to be executed.

        Args:
            calls: of the reply, in order, their ids unique.
        """
        keys = [self.key(call) for call in calls]
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
        after = replace(self, counts=counts, last=last, streak=streak, insisted=insisted)
        return after, frozenset(refused)

    def _begun_with(self, key: CallKey) -> Mapping[CallKey, int]:
        """What counts in a new row: nothing, but for a call that comes right after its equals."""
        return {key: self.streak} if key == self.last else {}


def _spelled(text: str) -> str:
    """A JSON text in the one spelling of its value."""
    return _ENCODER.encode(_DECODER.decode(text))


def _number(text: str) -> int | float:
    """A number that is whole is the same with a point as without, as JSON Schema has it."""
    value = float(text)
    return int(value) if value.is_integer() else value


# Made once: `json.loads` and `json.dumps` would make new ones each time.
_DECODER: Final = json.JSONDecoder(parse_float=_number)
_ENCODER: Final = json.JSONEncoder(sort_keys=True)
