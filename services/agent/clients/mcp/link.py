"""One MCP server of a process: connected when it is needed, left alone for a while when it fails.

A connection belongs to a task of its own, which opens and closes it; runs only borrow it. So a run
that is cancelled cancels its calls and nothing else.
"""

import asyncio
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Final

import structlog
from mcp import MCPError
from mcp_types import PARSE_ERROR

from services.agent.clients.mcp.connection import (
    CONNECT_SECONDS,
    Connection,
    SessionEndedError,
    connected,
    message_of,
)
from services.agent.clients.mcp.file import McpServerSettings
from services.agent.domain.chat import ToolResult
from services.agent.domain.errors import McpUnavailableError
from services.agent.domain.mcp.errors import ToolChangedError
from services.agent.domain.mcp.models import McpCatalogue, McpTool
from services.common.tasks import BackgroundTasks
from services.common.text import Json

PATIENCE: Final = 15.0
"""Seconds that a caller waits for a server that is not connected."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""How long a server that failed is left alone: twice as long each time, up to this."""

STEADY: Final = 10.0
"""Seconds after which a connection that ends counts as no failure."""


_FORGETFUL: Final = "it ends each session at once"


class Link:
    """A server, and the connection to it while there is one."""

    def __init__(
        self, settings: McpServerSettings, *, tasks: BackgroundTasks, taken: Container[str]
    ) -> None:
        """Connects when it is first asked.

        Args:
            settings: of the server.
            tasks: owns the connection.
            taken: names of tools that no server's may have.
        """
        self._settings = settings
        self._name = settings.declaration.name
        self._tasks = tasks
        self._taken = taken
        self._opening: asyncio.Future[Connection | McpUnavailableError] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._last = McpUnavailableError.of(self._name, "it has not been asked yet")
        self._log = structlog.get_logger("mcp").bind(server=self._name)

    async def catalogue(self) -> McpCatalogue:
        """What the server offers now.

        Raises:
            McpUnavailableError: it does not answer.
        """
        with suppress(SessionEndedError):
            return await self._catalogue()
        try:
            return await self._catalogue()
        except SessionEndedError as error:
            raise McpUnavailableError.of(self._name, _FORGETFUL) from error

    async def _catalogue(self) -> McpCatalogue:
        connection = await self._connected()
        try:
            async with asyncio.timeout(PATIENCE):
                return await connection.catalogue()
        except SessionEndedError:
            raise
        except Exception as error:
            connection.over.set()
            raise McpUnavailableError.of(self._name, _why(error)) from error

    async def call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        """What comes of a call.

        Raises:
            McpUnavailableError: the server does not answer.
            ToolError: nothing came back that can be used, or the tool has changed since.
        """
        try:
            return await self._call(tool, arguments)
        except SessionEndedError:
            # It was not executed, as the server did not know who asked.
            try:
                return await self._call(tool, arguments)
            except SessionEndedError as error:
                raise McpUnavailableError.of(self._name, _FORGETFUL) from error

    async def _call(self, tool: McpTool, arguments: Mapping[str, Json]) -> ToolResult:
        if tool.digest not in {each.digest for each in (await self.catalogue()).tools}:
            raise ToolChangedError(f"{tool.name} has changed since it was offered; it was not used")
        return await (await self._connected()).call(tool.original_name, arguments)

    async def _connected(self) -> Connection:
        opening = self._opening
        if opening is None:
            if asyncio.get_running_loop().time() < self._not_before:
                raise self._last
            opening = self._opening = asyncio.get_running_loop().create_future()
            self._holding = self._tasks.start(f"MCP server {self._name}", self._hold(opening))
        await asyncio.wait({opening}, timeout=PATIENCE)
        if not opening.done():
            raise McpUnavailableError.of(self._name, "it has not started yet")
        found = opening.result()
        if isinstance(found, McpUnavailableError):
            raise found
        if not found.over.is_set():
            return found
        if self._holding is not None:
            await asyncio.wait({self._holding}, timeout=PATIENCE)
        if self._opening is opening:
            raise McpUnavailableError.of(self._name, "its connection is ending")
        return await self._connected()

    async def _hold(self, opening: asyncio.Future[Connection | McpUnavailableError]) -> None:
        """Open a connection, keep it until it ends, and say what became of it."""
        begun, why, blameless = time.monotonic(), "its connection ended", False
        try:
            async with connected(self._settings, taken=self._taken) as connection:
                opening.set_result(connection)
                self._log.info("MCP server is connected")
                await connection.hold()
                blameless = connection.forgotten or time.monotonic() - begun >= STEADY
        except Exception as error:  # noqa: BLE001 - a server may fail in any way; no run ends by it
            why = _why(error)
        self._ended(why, blameless=blameless)
        if not opening.done():
            opening.set_result(self._last)

    def _ended(self, why: str, *, blameless: bool) -> None:
        self._failures = 0 if blameless else self._failures + 1
        longer = FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        pause = 0.0 if blameless else min(longer, LONGEST_PAUSE)
        self._not_before = asyncio.get_running_loop().time() + pause
        self._last = McpUnavailableError.of(self._name, why)
        self._opening = None
        self._log.warning("MCP server is not connected", why=why, pause_seconds=pause)


def _why(error: BaseException) -> str:
    """What went wrong with a server, for a person; never what a library says of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case MCPError() if error.error.message == "Connection closed":
            return "it ended before it answered"
        case SessionEndedError():
            return _FORGETFUL
        case MCPError() if error.error.code == PARSE_ERROR:
            return "it answered with what cannot be read"
        case MCPError():
            return f"it answered with an error: {message_of(error)}"
        case TimeoutError():
            return f"it did not answer within {CONNECT_SECONDS:g} s"
        case OSError():
            return f"it cannot be started or reached: {error.strerror or 'no reason given'}"
    return "it does not answer as a server should"
