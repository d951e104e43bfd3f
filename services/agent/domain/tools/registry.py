"""The tools that agents can be given, by name."""

import re
from collections.abc import Iterable, Sequence

from services.agent.domain.chat import ToolSpec
from services.agent.domain.ports import Tool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_tool_name(name: str) -> bool:
    """Whether a tool can be named so."""
    return _NAME.fullmatch(name) is not None


class Tools:
    """A fixed set of tools; satisfies `ports.ToolRegistry`."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Holds these tools.

        Raises:
            ValueError: a name is malformed or comes twice.
        """
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            name = tool.spec.name
            if name in self._tools or not is_tool_name(name):
                raise ValueError(f"tool name {name!r} is malformed or comes twice")
            self._tools[name] = tool

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None if unknown."""
        return self._tools.get(name)

    def list(self) -> Sequence[ToolSpec]:
        """All of them, sorted by name."""
        return [self._tools[name].spec for name in sorted(self._tools)]
