"""The tools of the campaigns, and the ledger outside in which their effects are found again."""

import asyncio
import json
import os
from pathlib import Path
from typing import Final

from services.agent.domain.chat import ToolContext, ToolEffect
from services.agent.domain.tools.function import FunctionTool, function_tool
from tests.chaos.failpoints import Failpoints
from tests.chaos.history import Effect

LEDGER: Final = "CHAOS_LEDGER"
TOOL_SECONDS: Final = "CHAOS_TOOL_SECONDS"
ONCE_ONLY: Final = frozenset({"pay"})
"""The tools that must not act twice."""


def chaos_tools(ledger: Path, points: Failpoints, *, seconds: float) -> list[FunctionTool]:
    """`look`, which may be repeated, `pay`, which may not, and `die`, which ends its process.

    Args:
        ledger: the file to which every effect is appended.
        points: reached before and after each execution.
        seconds: how long a tool takes, half of it before its effect and half after.
    """

    async def act(tool: str, context: ToolContext) -> str:
        with points.around("tool"):
            await asyncio.sleep(seconds / 2)
            record(ledger, Effect(tool, context.call_key))
            await asyncio.sleep(seconds / 2)
        return f"{tool}: done"

    async def look(step: int, context: ToolContext) -> str:
        """Looks at something."""
        return await act("look", context)

    async def pay(step: int, context: ToolContext) -> str:
        """Pays for something."""
        return await act("pay", context)

    async def die(step: int) -> str:
        """Takes its process down."""
        os._exit(3)

    return [
        function_tool(look, idempotent=True, effect=ToolEffect.READ_ONLY, trusted=True),
        function_tool(pay, idempotent=False, trusted=True),
        function_tool(die, idempotent=True, effect=ToolEffect.READ_ONLY, trusted=True),
    ]


def record(ledger: Path, effect: Effect) -> None:
    """Append an effect; the write is whole or not there, whenever the process is killed."""
    line = json.dumps([effect.tool, effect.key]) + "\n"
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def effects(ledger: Path) -> list[Effect]:
    """All that was recorded."""
    if not ledger.exists():
        return []
    return [Effect(*json.loads(line)) for line in ledger.read_text("utf-8").splitlines()]
