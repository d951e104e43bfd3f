"""Dialogues of the cases, written as OpenAI messages, as the domain's own values."""

import json
from pathlib import Path
from typing import Any

from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ToolCallId

CASES = Path(__file__).parents[1] / "cases"


def case(folder: str, name: str) -> Any:
    """A JSON file of a case."""
    return json.loads((CASES / folder / name).read_text(encoding="utf-8"))


def draft(message: dict[str, Any]) -> Draft:
    """An OpenAI message."""
    reasoning = message.get("reasoning_content")
    return Draft(
        role=Role(message["role"]),
        text=message.get("content") or "",
        tool_calls=tuple(tool_call(call) for call in message.get("tool_calls", ())),
        tool_call_id=message.get("tool_call_id"),
        tool_name="tool" if message["role"] == "tool" else None,
        metadata={"reasoning": reasoning} if reasoning else {},
    )


def tool_call(call: dict[str, Any]) -> ToolCall:
    """An OpenAI tool call."""
    function = call["function"]
    return ToolCall(ToolCallId(call["id"]), function["name"], function["arguments"])


def split_turn(messages: list[Draft]) -> tuple[list[Draft], list[Draft]]:
    """A dialogue as the turns before and the running one, which begins at the last question."""
    last = max(place for place, each in enumerate(messages) if each.role is Role.USER)
    return messages[:last], messages[last:]
