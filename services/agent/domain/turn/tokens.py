"""About how many tokens something costs a model to read, and texts cut to that. Pure."""

from typing import Final

from services.agent.domain.chat import ChatMessage, ToolSpec
from services.agent.domain.tools.schemas import schema_json

MESSAGE_TOKENS: Final = 4
"""What a message costs beside its text."""

_ASCII_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """About how many tokens a text costs: a quarter of one per ASCII character, else one each."""
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", errors="ignore"))
    return -(-ascii_count // _ASCII_PER_TOKEN) + len(text) - ascii_count


def estimate_message(message: ChatMessage) -> int:
    """About how many tokens a message costs."""
    tokens = MESSAGE_TOKENS + estimate_tokens(message.text) + estimate_tokens(message.reasoning)
    for call in message.tool_calls:
        tokens += estimate_tokens(call.name) + estimate_tokens(call.arguments_json)
    return tokens


def estimate_tool(tool: ToolSpec) -> int:
    """About how many tokens it costs to offer a tool."""
    texts = (tool.name, tool.description, schema_json(tool))
    return sum(estimate_tokens(text) for text in texts)


def cut_to_tokens(text: str, most: int) -> str:
    """The text's beginning, of about `most` tokens; where it was longer, a mark says so.

    The mark itself is there in any case, however few they are.
    """
    if estimate_tokens(text) <= most:
        return text
    mark = f"\n[cut here to fit the model: {len(text)} characters in all]"
    room = most - estimate_tokens(mark)
    low, high = 0, max(min(len(text), room * _ASCII_PER_TOKEN), 0)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] + mark
