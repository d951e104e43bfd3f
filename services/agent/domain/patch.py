"""Changes single fields of an agent's settings, named by paths such as `options.temperature`."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

from services.agent.domain.models import AgentSettings

T = TypeVar("T")

_NESTED: Final = ("options", "retrieval", "limits", "window")


def paths() -> frozenset[str]:
    """Every path there is: each field, and each field of those that have fields."""
    settings = AgentSettings("")
    outer = {field.name for field in fields(settings)}
    inner = {
        f"{name}.{field.name}" for name in _NESTED for field in fields(getattr(settings, name))
    }
    return frozenset(outer | inner)


def patched(current: AgentSettings, new: AgentSettings, changed: Iterable[str]) -> AgentSettings:
    """The current settings with the fields at these `paths` taken from the new ones."""
    for path in changed:
        current = _patched(current, new, path.split("."))
    return current


def _patched(current: T, new: T, path: list[str]) -> T:
    name, *rest = path
    value: Any = getattr(new, name)
    if rest:
        value = _patched(getattr(current, name), value, rest)
    if not is_dataclass(current):
        raise TypeError(f"{name} is no field of {current!r}")
    changed: T = replace(current, **{name: value})  # type: ignore[type-var]  # is a dataclass
    return changed
