"""How large the parts of a compaction are. Pure."""

from typing import Final

from services.agent.domain.models import Window
from services.agent.domain.turn.context import Room

_KEPT_SHARE: Final = 3
_SUMMARY_SHARE: Final = 4


def kept_room(window: Window, tokens: int) -> Room:
    """What the past messages may take that are not summarised, if the window may cost `tokens`."""
    return Room(window.kept_messages, tokens // _KEPT_SHARE)


def summary_tokens(window: Window, tokens: int) -> int:
    """How long a summary may be, if the window may cost `tokens`."""
    return max(min(window.summary_tokens, tokens // _SUMMARY_SHARE), 1)
