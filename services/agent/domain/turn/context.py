"""What of a conversation a model is shown: a window that keeps whole turns and whole rounds. Pure.

A round is one assistant message with all results of its calls; it is shown whole or not at all,
since every provider refuses a result without its call and a call without its result. The question
of the running turn and its newest round are always shown. The stored history keeps everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final, TypeAlias

from services.agent.domain.chat import ChatMessage
from services.agent.domain.messages import Draft, Role

Round: TypeAlias = tuple[ChatMessage, ...]

MESSAGE_TOKENS: Final = 4
"""What a message costs beside its text."""

_ASCII_PER_TOKEN = 4
_NO_RESULT = "interrupted: there is no result"
_NO_ANSWER = "(This message was not answered.)"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model is shown of a conversation.

    Attributes:
        messages: in order, oldest first.
        left_out: how many messages of the running turn are not among them.
    """

    messages: tuple[ChatMessage, ...]
    left_out: int = 0


def window(
    history: Sequence[Draft],
    turn: Sequence[Draft],
    *,
    max_messages: int,
    max_tokens: int | None = None,
) -> Shown:
    """The newest part of a conversation that keeps within both bounds.

    Args:
        history: messages of past turns, oldest first; one without its beginning is left out.
        turn: messages of the running turn, the user's first.
        max_messages: counts the running turn too.
        max_tokens: bounds the estimated tokens; None does not.
    """
    question, *rounds = _rounds(turn, running=True)
    kept = rounds[-1:]
    room = _Room(max_messages, max_tokens).without(question).without(*kept)
    more = _newest(rounds[:-1], room)
    kept = [*more, *kept]
    left_out = sum(len(each) for each in rounds) - sum(len(each) for each in kept)
    past: list[Round] = []
    if not left_out:
        past = _newest(_turns(history), room.without(*more))
    return Shown(tuple(message for each in (*past, question, *kept) for message in each), left_out)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text costs: a quarter of one per ASCII character, else one each."""
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", errors="ignore"))
    return -(-ascii_count // _ASCII_PER_TOKEN) + len(text) - ascii_count


def estimate_message(message: ChatMessage) -> int:
    """About how many tokens a message costs."""
    texts = [message.text, message.reasoning]
    texts += [part for call in message.tool_calls for part in (call.name, call.arguments_json)]
    return MESSAGE_TOKENS + sum(estimate_tokens(text) for text in texts)


@dataclass(frozen=True, slots=True)
class _Room:
    messages: int
    tokens: int | None

    def without(self, *rounds: Round) -> "_Room":
        count = sum(len(each) for each in rounds)
        if self.tokens is None:
            return _Room(self.messages - count, None)
        cost = sum(estimate_message(message) for each in rounds for message in each)
        return _Room(self.messages - count, self.tokens - cost)

    @property
    def overdrawn(self) -> bool:
        return self.messages < 0 or (self.tokens is not None and self.tokens < 0)


def _newest(parts: Sequence[Round], room: _Room) -> list[Round]:
    """The longest suffix of `parts` that has room."""
    taken: list[Round] = []
    for part in reversed(parts):
        room = room.without(part)
        if room.overdrawn:
            break
        taken.append(part)
    return taken[::-1]


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
