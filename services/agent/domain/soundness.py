"""Checks that what an operator's own tool or hook gave is of the types that it says. Pure.

Nothing else stops a `None` in place of a text, which would only be found where it is stored, and
end the run there.
"""

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

_Check: TypeAlias = Callable[[object], bool]


def check_sound(value: object) -> None:
    """Check a value, and what it holds.

    Args:
        value: of a dataclass of the domain's; any other is not looked into.

    Raises:
        TypeError: something in it is of another type; names the field.
    """
    kind: type = type(value)
    for name, fits in _fields(kind):
        if not fits(getattr(value, name)):
            found = type(getattr(value, name)).__name__
            raise TypeError(f"{kind.__name__}.{name} is a {found}")


@lru_cache(64)
def _fields(kind: type) -> Sequence[tuple[str, _Check]]:
    """The fields of a dataclass, each with the check that its type asks for."""
    if not is_dataclass(kind):
        return ()
    return tuple((name, _check_of(hint)) for name, hint in get_type_hints(kind).items())


def _check_of(hint: Any) -> _Check:
    if isinstance(hint, NewType):
        return _check_of(hint.__supertype__)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        checks = [_check_of(part) for part in parts]
        return lambda value: any(fits(value) for fits in checks)
    if origin is Literal:
        return lambda value: value in parts
    if origin is tuple:
        fits = _check_of(parts[0])
        return lambda value: isinstance(value, Sequence) and all(map(fits, value))
    if hint is float:
        return lambda value: isinstance(value, float | int)
    return _instance_check(origin or hint)


def _instance_check(kind: type) -> _Check:
    """A check for a class; what a value of a dataclass holds is checked by its own types."""

    def fits(value: object) -> bool:
        if not isinstance(value, kind):
            return False
        found: type = type(value)
        return all(fits_field(getattr(value, name)) for name, fits_field in _fields(found))

    return fits
