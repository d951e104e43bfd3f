"""What of a conversation a model is shown: a window that keeps whole turns and whole rounds. Pure.

A round is one assistant message with all results of its calls; it is shown whole or not at all,
since every provider refuses a result without its call and a call without its result. The question
of the running turn and its newest round are always shown, results cut where there is no room for
them. What is remembered of turns that are shown no longer comes first. The stored history keeps
everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final, TypeAlias

from services.agent.domain.chat import ChatMessage
from services.agent.domain.messages import Draft, Role
from services.agent.domain.turn.tokens import cut_to_tokens, estimate_message

Round: TypeAlias = tuple[ChatMessage, ...]

LEAST_RESULT_TOKENS: Final = 48
"""What is left at least of a result that is cut, its mark included."""

_NO_RESULT = "interrupted: there is no result"
_NO_ANSWER = "(This message was not answered.)"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model is shown of a conversation.

    Attributes:
        messages: in order, oldest first.
        left_out: how many messages of the running turn are not among them.
        since: place in the history from which on it is shown.
        remembered: whether what is remembered of turns before is among them.
    """

    messages: tuple[ChatMessage, ...]
    left_out: int = 0
    since: int = 0
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """What messages may take.

    Attributes:
        messages: how many; None does not bound them.
        tokens: what they may cost; None does not bound that.
    """

    messages: int | None = None
    tokens: int | None = None

    def without(self, *rounds: Round) -> "Room":
        """What is left beside some rounds; may be less than nothing."""
        count = sum(len(each) for each in rounds)
        messages = None if self.messages is None else self.messages - count
        return Room(messages, self.costing(*rounds).tokens)

    def costing(self, *rounds: Round) -> "Room":
        """What is left beside some rounds whose messages do not count."""
        return self if self.tokens is None else Room(self.messages, self.tokens - cost(*rounds))

    def holds(self, *rounds: Round) -> bool:
        """Whether there is room for these."""
        left = self.without(*rounds)
        return (left.messages is None or left.messages >= 0) and (
            left.tokens is None or left.tokens >= 0
        )


def window(
    history: Sequence[Draft], turn: Sequence[Draft], room: Room, *, remembered: Round = ()
) -> Shown:
    """The newest part of a conversation that there is room for.

    Args:
        history: messages of past turns, oldest first; one without its beginning is left out.
        turn: messages of the running turn, the user's first; empty before there is one.
        room: bounds the running turn and the past ones together.
        remembered: stands for turns before the history; left out where it takes more than half of
            what the question leaves.
    """
    question, *rounds = _rounds(turn, running=True) or [()]
    room = room.without(question)
    if room.tokens is not None and cost(remembered) > room.tokens // 2:
        remembered = ()
    room = room.costing(remembered)
    newest = [_fitting(each, room.tokens) for each in rounds[-1:]]
    room = room.without(*newest)
    kept = [*_newest(rounds[:-1], room), *newest]
    left_out = sum(len(each) for each in rounds) - sum(len(each) for each in kept)
    past: list[Round] = []
    if not left_out:
        past = _newest(_turns(history), room.without(*kept[: len(kept) - len(newest)]))
    parts = (remembered, *past, question, *kept)
    return Shown(
        tuple(message for each in parts for message in each),
        left_out,
        since=_start_of(history, turns=len(past)),
        remembered=bool(remembered),
    )


def kept_from(history: Sequence[Draft], room: Room) -> int:
    """The place in the history from which on its newest whole turns have room."""
    return _start_of(history, turns=len(_newest(_turns(history), room)))


def cost(*rounds: Round) -> int:
    """About how many tokens some rounds cost."""
    return sum(estimate_message(message) for each in rounds for message in each)


def whole_cost(history: Sequence[Draft], turn: Sequence[Draft]) -> int:
    """About how many tokens it would cost to show everything."""
    return cost(*_turns(history), *_rounds(turn, running=True))


def _newest(parts: Sequence[Round], room: Room) -> list[Round]:
    """The longest suffix of `parts` that has room."""
    taken: list[Round] = []
    for part in reversed(parts):
        if not room.holds(part):
            break
        room = room.without(part)
        taken.append(part)
    return taken[::-1]


def _fitting(newest: Round, tokens: int | None) -> Round:
    """A round with its results cut to what is left beside its other messages."""
    if tokens is None or cost(newest) <= tokens:
        return newest
    bare = tuple(_without_result(each) for each in newest)
    sizes = [cost((each,)) - cost((left,)) for each, left in zip(newest, bare, strict=True)]
    most = _share(sorted(size for size in sizes if size), tokens - cost(bare))
    return tuple(
        replace(each, text=cut_to_tokens(each.text, most)) if each.role is Role.TOOL else each
        for each in newest
    )


def _without_result(message: ChatMessage) -> ChatMessage:
    return replace(message, text="") if message.role is Role.TOOL else message


def _share(sizes: Sequence[int], tokens: int) -> int:
    """What each of some results may take, so that the small ones leave the rest to the large."""
    share = 0
    for place, size in enumerate(sizes):
        share = tokens // (len(sizes) - place)
        if size > share:
            break
        tokens -= size
    return max(share, LEAST_RESULT_TOKENS)


def _start_of(history: Sequence[Draft], *, turns: int) -> int:
    """Where the newest so many turns of the history begin."""
    starts = [place for place, message in enumerate(history) if message.role is Role.USER]
    return starts[-turns] if turns else len(history)


def _turns(history: Sequence[Draft]) -> list[Round]:
    starts = [place for place, message in enumerate(history) if message.role is Role.USER]
    return [
        tuple(message for each in _rounds(history[start:end]) for message in each)
        for start, end in pairwise([*starts, len(history)])
    ]


def _rounds(turn: Sequence[Draft], *, running: bool = False) -> list[Round]:
    """A turn as its question and its rounds, made complete; a past one ends with an answer."""
    rounds: list[Round] = []
    place = 0
    while place < len(turn):
        message = turn[place]
        place += 1
        if message.role is not Role.TOOL:
            results = list(takewhile(_is_result, turn[place:]))
            place += len(results)
            rounds.append(_round(message, results))
    if not running and not _answered(rounds):
        rounds.append((ChatMessage(Role.ASSISTANT, _NO_ANSWER),))
    return rounds


def _is_result(message: Draft) -> bool:
    return message.role is Role.TOOL


def _answered(rounds: Sequence[Round]) -> bool:
    last = rounds[-1][-1]
    return last.role is Role.ASSISTANT and not last.tool_calls


def _round(message: Draft, results: Sequence[Draft]) -> Round:
    given = {result.tool_call_id: chat_message(result) for result in results}
    return (
        chat_message(message),
        *(
            given.get(call.id)
            or ChatMessage(Role.TOOL, _NO_RESULT, tool_call_id=call.id, tool_name=call.name)
            for call in message.tool_calls
        ),
    )


def chat_message(draft: Draft) -> ChatMessage:
    """A message as a model reads it; a notice of ChatMind's becomes an aside of the assistant.

    Many servers accept instructions at the very beginning only, and want question and answer to
    alternate; so the notice that stands where an answer would is told as one.
    """
    reasoning = draft.metadata.get("reasoning")
    said = ChatMessage(
        role=draft.role,
        text=draft.text,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
        tool_name=draft.tool_name,
        citations=draft.citations if draft.role is Role.TOOL else (),
        reasoning=reasoning if isinstance(reasoning, str) else "",
    )
    if draft.role is Role.SYSTEM:
        return replace(said, role=Role.ASSISTANT, text=f"({draft.text})")
    return said
