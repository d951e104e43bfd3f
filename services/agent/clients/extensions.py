"""Hooks and tools that an operator brings, from Python modules that the settings name.

A module exposes hooks as `HOOKS`, a list of classes, and tools as `TOOLS`, a list of tools.
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from services.agent.domain.chat import ToolSpec
from services.agent.domain.hooks.hook import CallHistory, Hook, HookConfig
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.ports import Tool
from services.agent.domain.tools.registry import Tools
from services.common.errors import StartupError

HookKind: TypeAlias = type[Hook[HookConfig]]


class ExtensionError(StartupError):
    """A module of an operator's cannot be used; says which, and why."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """What there is besides what ChatMind ships.

    Attributes:
        tools: those that agents can be given.
        hooks: likewise.
    """

    tools: tuple[Tool, ...] = ()
    hooks: tuple[HookKind, ...] = ()

    def with_tools(self, shipped: Iterable[Tool]) -> Tools:
        """All tools.

        Raises:
            ExtensionError: a name is malformed or comes twice.
        """
        try:
            return Tools([*shipped, *self.tools])
        except ValueError as error:
            raise ExtensionError(str(error)) from error

    def with_hooks(self, shipped: Iterable[HookKind], history: CallHistory) -> Hooks:
        """All hooks.

        Args:
            shipped: those of ChatMind.
            history: tells them what was called before.

        Raises:
            ExtensionError: a name is malformed or comes twice.
        """
        try:
            return Hooks([*shipped, *self.hooks], history=history)
        except ValueError as error:
            raise ExtensionError(str(error)) from error


def load_hooks(paths: str) -> tuple[HookKind, ...]:
    """The hooks of some modules.

    Args:
        paths: what Python would import, separated by commas; empty for none.

    Raises:
        ExtensionError: a module cannot be imported, or what it exposes are no hooks.
    """
    found = []
    for path in _split(paths):
        for kind in _exposed(path, "HOOKS"):
            if not (isinstance(kind, type) and issubclass(kind, Hook)):
                raise ExtensionError(f"{path}: HOOKS holds {kind!r}, which is no Hook class")
            if not isinstance(getattr(kind, "name", None), str):
                raise ExtensionError(f"{path}: the hook {kind.__name__} has no name")
            found.append(kind)
    return tuple(found)


def load_tools(paths: str) -> tuple[Tool, ...]:
    """The tools of some modules.

    Args:
        paths: what Python would import, separated by commas; empty for none.

    Raises:
        ExtensionError: a module cannot be imported, or what it exposes are no tools.
    """
    found: list[Tool] = []
    for path in _split(paths):
        for tool in _exposed(path, "TOOLS"):
            if not (isinstance(getattr(tool, "spec", None), ToolSpec) and hasattr(tool, "run")):
                raise ExtensionError(f"{path}: TOOLS holds {tool!r}, which is no tool")
            found.append(tool)
    return tuple(found)


def _split(paths: str) -> Iterator[str]:
    return (path.strip() for path in paths.split(",") if path.strip())


def _exposed(path: str, name: str) -> Sequence[Any]:
    try:
        module = importlib.import_module(path)
    except Exception as error:  # what a module does when it is imported is its own affair
        why = f"{type(error).__name__}: {error}"
        raise ExtensionError(f"the module {path!r} cannot be imported: {why}") from error
    exposed = getattr(module, name, None)
    if not isinstance(exposed, Sequence) or isinstance(exposed, str):
        raise ExtensionError(f"the module {path!r} has no list {name}")
    return exposed
