"""Messages of a conversation that was had."""

from collections.abc import Sequence
from datetime import UTC, datetime

from services.agent.domain.memory.models import Place, Said
from services.agent.domain.messages import Message, Role, ToolCall
from services.agent.domain.models import MessageId, RunId, SessionId, ToolCallId
from services.common.paging import Listing

START = datetime(2026, 6, 1, 10, 30, tzinfo=UTC)


def message(
    sequence: int,
    role: Role,
    text: str,
    *,
    calls: Sequence[ToolCall] = (),
    answers: str | None = None,
) -> Message:
    """A committed message."""
    return Message(
        role=role,
        text=text,
        tool_calls=tuple(calls),
        tool_call_id=None if answers is None else ToolCallId(answers),
        tool_name=None if answers is None else "look",
        id=MessageId(f"m{sequence}"),
        session_id=SessionId("s1"),
        run_id=RunId("r0"),
        sequence=sequence,
        step=0,
        create_time=START,
    )


def talk(*turns: Sequence[str]) -> list[Said]:
    """Turns of a question, tool results and an answer each, in the order of their texts."""
    said: list[Said] = []
    for question, *texts in turns:
        turn = len(said) + 1
        said.append(Said(Place(turn, turn), message(turn, Role.USER, question)))
        for number, text in enumerate(texts, start=1):
            at = turn + number
            role = Role.ASSISTANT if number == len(texts) else Role.TOOL
            answers = str(at) if role is Role.TOOL else None
            said.append(Said(Place(turn, at), message(at, role, text, answers=answers)))
    return said


class Pages:
    """Gives them page by page, and notes from behind which places."""

    def __init__(self, said: Sequence[Said], *, size: int = 200) -> None:
        self._said = said
        self._size = size
        self.asked: list[Place] = []

    async def __call__(self, after: Place) -> Listing[Said]:
        self.asked.append(after)
        found = [each for each in self._said if each.place > after]
        return Listing(found[: self._size], len(found) > self._size)
