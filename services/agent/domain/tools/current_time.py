"""The tool that tells the time."""

import asyncio
from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from services.agent.domain.chat import ToolEffect
from services.agent.domain.tools.errors import RetryToolError
from services.agent.domain.tools.function import FunctionTool, function_tool
from services.common.clock import Clock

_MOST_NAMES: Final = 3


def current_time_tool(clock: Clock) -> FunctionTool:
    """The tool `current_time` of this clock."""

    async def current_time(timezone: str = "UTC") -> str:
        """Tells the present date, time and weekday. Use it before you reckon with "today" or "now".

        Give the user's time zone if it is known, from what they said or from your instructions.

        Example: {"timezone": "Asia/Shanghai"} gives "2026-06-01T10:30:00+08:00 (Monday)".

        Args:
            timezone: an IANA time zone such as "Asia/Shanghai"; "UTC" if left out.
        """
        try:
            zone = ZoneInfo(timezone)
        except (KeyError, ValueError, OSError) as error:
            # The names are read from many files, once.
            near = " or ".join(await asyncio.to_thread(_nearest, timezone))
            told = (
                f'must be an IANA time zone such as "Asia/Shanghai"{near and f"; perhaps {near}"}'
            )
            raise RetryToolError(told) from error
        moment = clock().astimezone(zone)
        return f"{moment.isoformat(timespec='seconds')} ({moment:%A})"

    return function_tool(current_time, idempotent=True, effect=ToolEffect.READ_ONLY, trusted=True)


def _nearest(name: str) -> list[str]:
    """The names that are most like this one; a city alone finds its zone."""
    wanted = name[:64].strip().replace(" ", "_").casefold()
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
