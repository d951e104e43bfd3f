"""What happened while things were broken: what clients saw, and what is found once all is healed.

Clients write down every operation with its outcome. A call whose answer got lost is *unknown*: it
may or may not have had its effect, and the checker accepts either, but never both and never twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

FINAL = frozenset({"finished", "error", "cancelled"})


class Outcome(Enum):
    """What a client knows of an operation."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Submit:
    """One message that a client sent, all its repeats included.

    Attributes:
        session_id: where.
        text: what; no two messages are the same.
        outcome: FAIL where it was refused for good, UNKNOWN where the client gave up.
        run_id: the run that was acknowledged; empty unless OK.
        tries: how often it was sent.
    """

    session_id: str
    text: str
    outcome: Outcome
    run_id: str = ""
    tries: int = 1


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the database holds it.

    Attributes:
        tokens: what it spent, in and out.
        token_limit: what it may spend; None for no limit.
        crashes: how many workers were lost on it.
    """

    id: str
    session_id: str
    turn: int
    state: str
    stop_reason: str | None = None
    crashes: int = 0
    tokens: int = 0
    token_limit: int | None = None


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as the database holds it.

    Attributes:
        calls: the tool calls it asks for: id to name of the tool.
        call_id: the call it answers.
        error: why that call brought no result.
        notice: whether it is ChatMind's own word in place of an answer.
    """

    session_id: str
    sequence: int
    id: str
    run_id: str
    role: str
    text: str = ""
    calls: Mapping[str, str] = field(default_factory=dict)
    call_id: str | None = None
    error: str | None = None
    notice: bool = False

    @property
    def closes(self) -> bool:
        """Whether its run says nothing more but closing words."""
        return self.role == "system" or (self.role == "assistant" and not self.calls)


@dataclass(frozen=True, slots=True)
class Effect:
    """One time that a tool did what it does, as the world outside remembers it.

    Attributes:
        tool: which tool.
        key: the idempotency key it was given.
    """

    tool: str
    key: str

    @property
    def call(self) -> tuple[str, str]:
        """The run, and the call within it."""
        return self.key.partition(":")[0], self.key.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a subscriber received it."""

    sequence: int
    message_id: str
    run_id: str


@dataclass(slots=True)
class Subscription:
    """All that one subscriber received, across all its connections, nothing left out.

    Attributes:
        name: for people.
        session_id: what it follows, from the beginning.
        received: in the order of arrival.
        ended: final states it was told, by run.
        cuts: how often its connection was cut.
    """

    name: str
    session_id: str
    received: list[Delivery] = field(default_factory=list)
    ended: dict[str, set[str]] = field(default_factory=dict)
    cuts: int = 0

    @property
    def last(self) -> int:
        """The sequence after which it resumes."""
        return self.received[-1].sequence if self.received else 0


@dataclass(frozen=True, slots=True)
class History:
    """One campaign as its clients and the database tell it.

    Attributes:
        submits: what clients sent.
        runs: the table of runs after healing.
        messages: the table of messages after healing, by session and sequence.
        effects: what tools did.
        subscriptions: what subscribers received.
        held_together: samples of sessions in which more than one run was held at once.
        stuck: runs that nobody worked on though somebody should have, twice a lease after healing.
        once_only: tools that must not act twice for one call.
    """

    submits: Sequence[Submit]
    runs: Sequence[RunRow]
    messages: Sequence[MessageRow]
    effects: Sequence[Effect] = ()
    subscriptions: Sequence[Subscription] = ()
    held_together: Sequence[tuple[str, Sequence[str]]] = ()
    stuck: Sequence[str] = ()
    once_only: frozenset[str] = frozenset()
