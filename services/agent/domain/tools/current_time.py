"""The tool that tells the time."""

from zoneinfo import ZoneInfo

from services.agent.domain.tools.function import FunctionTool, function_tool
from services.common.clock import Clock
from services.common.errors import InvalidArgumentError


def current_time_tool(clock: Clock) -> FunctionTool:
    """The tool `current_time` of this clock."""

    async def current_time(timezone: str = "UTC") -> str:
        """Tells the present date, time and weekday. Use it before you reckon with "today" or "now".

        Example: {"timezone": "Asia/Shanghai"} gives "2026-06-01T10:30:00+08:00 (Monday)".

        Args:
            timezone: an IANA time zone such as "Asia/Shanghai"; "UTC" if left out.
        """
        moment = clock().astimezone(_zone(timezone))
        return f"{moment.isoformat(timespec='seconds')} ({moment:%A})"

    return function_tool(current_time, idempotent=True)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgumentError.of_field(
            "timezone", 'must be an IANA time zone such as "Asia/Shanghai"'
        ) from error
