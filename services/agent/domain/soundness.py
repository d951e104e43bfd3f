"""Checks that what an operator's own tool or hook gave is of the types that it says. Pure.

Nothing else stops a `None` in place of a text, which would only be found where it is stored, and
end the run there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints


def check_sound(value: object) -> None:
    """Check a value, and what it holds.

    Args:
        value: of a dataclass of the domain's; any other is not looked into.

    Raises:
        TypeError: something in it is of another type; names the field.
    """
    kind: type = type(value)
    for name, hint in _hints(kind).items():
        if not _fits(getattr(value, name), hint):
            found = type(getattr(value, name)).__name__
            raise TypeError(f"{kind.__name__}.{name} is a {found}")


@lru_cache(64)
def _hints(kind: type) -> Mapping[str, object]:
    return get_type_hints(kind) if is_dataclass(kind) else {}


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, NewType):
        hint = hint.__supertype__
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, Sequence) and all(_fits(each, parts[0]) for each in value)
    if hint is float:
        return isinstance(value, float | int)
    if not isinstance(value, origin or hint):
        return False
    kind: type = type(value)
    return all(_fits(getattr(value, name), each) for name, each in _hints(kind).items())
