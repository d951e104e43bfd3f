"""What is remembered of a session beside its messages: its summary, and what is forgotten."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from services.agent.domain.messages import Message
from services.agent.domain.run_models import Usage

LAST: Final = 2**63 - 1
"""Past every sequence."""


class Place(NamedTuple):
    """Where a message stands in the order in which models are shown messages.

    Attributes:
        turn: sequence of the question that its turn begins with.
        sequence: its own.
    """

    turn: int
    sequence: int


class Said(NamedTuple):
    """A message and where it stands."""

    place: Place
    message: Message


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands for the older part of a session.

    Attributes:
        text: written by a model; information, never instructions.
        question: the first question of the user; the end of a long one is cut off.
        through_turn: it covers all turns up to this one; only ever grows.
        messages: how many messages it covers.
        model: the name of the model that wrote it.
    """

    text: str
    question: str
    through_turn: int
    messages: int
    model: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of a session.

    Attributes:
        revision: counts the changes; 0 before the first.
        cleared_turn: turns up to this one are forgotten; 0 where none are.
        summary: stands for older turns after that.
    """

    revision: int = 0
    cleared_turn: int = 0
    summary: Summary | None = None

    @property
    def after(self) -> Place:
        """Behind all messages that are forgotten or covered by the summary."""
        covered = 0 if self.summary is None else self.summary.through_turn
        return Place(max(self.cleared_turn, covered), LAST)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did.

    Attributes:
        messages: how many messages it summarised.
        tokens_before: about what they cost, and the summary before with them.
        usage: what the model processed for it.
    """

    messages: int = 0
    tokens_before: int = 0
    usage: Usage = field(default_factory=Usage)
