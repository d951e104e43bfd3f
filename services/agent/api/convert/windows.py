"""Windows between the wire and the domain."""

from typing import Final

from chatmind.agent.v1 import agent_pb2

from services.agent.domain.models import Window, WindowStrategy

_STRATEGIES: Final = {
    agent_pb2.Window.STRATEGY_UNSPECIFIED: WindowStrategy.WINDOW,
    agent_pb2.Window.STRATEGY_WINDOW: WindowStrategy.WINDOW,
    agent_pb2.Window.STRATEGY_TOKEN_BUDGET: WindowStrategy.TOKEN_BUDGET,
    agent_pb2.Window.STRATEGY_COMPACTION: WindowStrategy.COMPACTION,
}
_FROM_STRATEGY: Final = {
    WindowStrategy.WINDOW: agent_pb2.Window.STRATEGY_WINDOW,
    WindowStrategy.TOKEN_BUDGET: agent_pb2.Window.STRATEGY_TOKEN_BUDGET,
    WindowStrategy.COMPACTION: agent_pb2.Window.STRATEGY_COMPACTION,
}


def to_window(value: agent_pb2.Window) -> Window:
    """A window from the wire."""
    return Window(
        max_messages=value.max_messages if value.HasField("max_messages") else None,
        max_tokens=value.max_tokens if value.HasField("max_tokens") else None,
        strategy=_STRATEGIES[value.strategy],
        compact_at=value.compact_at if value.HasField("compact_at") else None,
        keep_messages=value.keep_messages if value.HasField("keep_messages") else None,
        max_summary_tokens=(
            value.max_summary_tokens if value.HasField("max_summary_tokens") else None
        ),
    )


def from_window(window: Window) -> agent_pb2.Window:
    """A window for the wire."""
    return agent_pb2.Window(
        max_messages=window.max_messages,
        max_tokens=window.max_tokens,
        strategy=_FROM_STRATEGY[window.strategy],
        compact_at=window.compact_at,
        keep_messages=window.keep_messages,
        max_summary_tokens=window.max_summary_tokens,
    )
