"""What the hand-written loops share, and what all contenders are asked."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from bench.conversation import RESULT, TOOL

Converse: TypeAlias = Callable[[], Awaitable[str]]
"""Holds one conversation from its question to its answer."""

MODEL: Final = "scripted"
KEY: Final = "none"
PROMPT: Final = "You answer questions about the handbook. Look up what you do not know."
QUESTION: Final = "What is it?"

MESSAGES: Final[list[Any]] = [
    {"role": "system", "content": PROMPT},
    {"role": "user", "content": QUESTION},
]
TOOLS: Final[list[Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Look something up.",
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string", "description": "What to look for."}},
                "required": ["what"],
                "additionalProperties": False,
            },
        },
    }
]


async def look_up(what: str) -> str:  # noqa: ARG001
    """Look something up.

    Args:
        what: What to look for.
    """
    return RESULT


async def act(name: str, arguments: str) -> str:
    """What the tool gives."""
    assert name == TOOL
    return await look_up(**json.loads(arguments))


def hand_loop(ask: Callable[[Any], Awaitable[bytes]]) -> Converse:
    """A loop that does nothing but what it must.

    Args:
        ask: sends a body and gives what comes back.
    """

    async def converse() -> str:
        messages = list(MESSAGES)
        while True:
            reply = json.loads(await ask({"model": MODEL, "messages": messages, "tools": TOOLS}))
            said = reply["choices"][0]["message"]
            messages.append(said)
            if not said.get("tool_calls"):
                return str(said["content"])
            for call in said["tool_calls"]:
                text = await act(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    return converse
