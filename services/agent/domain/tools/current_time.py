"""The tool that tells the time."""

import asyncio

from services.agent.domain.chat import ToolContext, ToolEffect
from services.agent.domain.tools.errors import RetryToolError
from services.agent.domain.tools.function import FunctionTool, function_tool
from services.agent.domain.zones import nearest_zones, zone_of
from services.common.clock import Clock


def current_time_tool(clock: Clock) -> FunctionTool:
    """The tool `current_time` of this clock."""

    async def current_time(context: ToolContext, timezone: str = "") -> str:
        """Tells the present date, time and weekday. Use it before you reckon with "now".

        Without a time zone it is the user's own; name one to know the time elsewhere.

        Example: {"timezone": "Asia/Shanghai"} gives "2026-06-01T10:30:00+08:00 (Monday)".

        Args:
            timezone: an IANA time zone such as "Asia/Shanghai"; the user's own if left out.
        """
        name = timezone or context.time_zone
        zone = zone_of(name)
        if zone is None:
            # The names are read from many files, once.
            near = " or ".join(await asyncio.to_thread(nearest_zones, name))
            told = (
                f'must be an IANA time zone such as "Asia/Shanghai"{near and f"; perhaps {near}"}'
            )
            raise RetryToolError(told)
        moment = clock().astimezone(zone)
        return f"{moment.isoformat(timespec='seconds')} ({moment:%A})"

    return function_tool(current_time, idempotent=True, effect=ToolEffect.READ_ONLY, trusted=True)
