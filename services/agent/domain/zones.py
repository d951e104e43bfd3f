"""Time zones by their IANA names. Pure, but that the names are read from files."""

from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

DEFAULT_ZONE: Final = "UTC"
MAX_ZONE_BYTES: Final = 64

_MOST_NAMES: Final = 3


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of that name; None if there is none."""
    if len(name) > MAX_ZONE_BYTES:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def nearest_zones(name: str) -> list[str]:
    """The names that are most like this one; a city alone finds its zone. Slow the first time."""
    wanted = name[:MAX_ZONE_BYTES].strip().replace(" ", "_").casefold()
    names = _names()
    same = [each for key, each in names.items() if wanted in {key, key.rpartition("/")[2]}]
    close = get_close_matches(wanted, names, _MOST_NAMES, 0.75)
    return same or [names[key] for key in close]


@cache
def _names() -> dict[str, str]:
    """The zones of places, by name in lower case.

    Those of offsets are left out: the sign of Etc/GMT+8 means the opposite of what one expects.
    """
    return {name.casefold(): name for name in sorted(available_timezones()) if _is_place(name)}


def _is_place(name: str) -> bool:
    return "/" in name and not name.startswith("Etc/")
