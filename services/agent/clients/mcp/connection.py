"""A connection to an MCP server: its tools, and calls of them, by the official SDK."""

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import structlog
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from services.agent.clients.mcp.file import HttpSettings, McpServerSettings
from services.agent.clients.mcp.http import http_streams
from services.agent.clients.mcp.results import rendered
from services.agent.clients.mcp.stdio import stdio_streams
from services.agent.clients.mcp.tidied import Tidied
from services.agent.domain.chat import ToolResult
from services.agent.domain.mcp.errors import ServerTooSlowError
from services.agent.domain.mcp.models import ListedTool, McpCatalogue
from services.agent.domain.mcp.offer import MAX_TOOLS, offered_tools
from services.agent.domain.mcp.text import visible
from services.agent.domain.tools.errors import FailedToolError, RetryToolError
from services.common.tasks import background_tasks
from services.common.text import Json, shortened

CONNECT_SECONDS: Final = 25.0
"""How long a server has until its tools are known; the SDK alone waits 10 s for a first answer."""

FRESH_SECONDS: Final = 300.0
"""How old what is known of the tools may get, where no change is told of."""

_MOST_PAGES = 32
_MOST_MESSAGE_BYTES = 1000
_LISTEN_PAUSE = 5.0
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
_ENDED = (anyio.BrokenResourceError, anyio.ClosedResourceError, RuntimeError)


class SessionEndedError(Exception):
    """The server no longer knows this client; the call was not executed."""


class Connection:
    """A connection that stands; made by `connected`.

    Attributes:
        over: set once it stands no more, or is to be given up.
        forgotten: the server no longer knows it, which is no fault of the server's.
    """

    def __init__(self, settings: McpServerSettings, taken: Container[str]) -> None:
        self.over = asyncio.Event()
        self.forgotten = False
        self._settings = settings
        self._taken = taken
        self._client: Client | None = None
        self._catalogue: McpCatalogue | None = None
        self._fresh_until = 0.0
        self._listing = asyncio.Lock()

    async def catalogue(self) -> McpCatalogue:
        """What the server offers, asked again if it may have changed.

        Raises:
            SessionEndedError: the server has forgotten this connection.
            Exception: it does not say.
        """
        async with self._listing:
            loop = asyncio.get_running_loop()
            if self._catalogue is None or loop.time() >= self._fresh_until:
                # Before the question: what changes meanwhile is asked for again.
                self._fresh_until = loop.time() + FRESH_SECONDS
                try:
                    self._catalogue = await self._listed()
                except BaseException as error:
                    self._fresh_until = 0.0
                    if isinstance(error, MCPError) and self._is_forgotten(error):
                        raise SessionEndedError from error
                    raise
            return self._catalogue

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> ToolResult:
        """What comes of a call of a tool, by the server's name for it.

        Raises:
            SessionEndedError: the server has forgotten this connection.
            ToolError: nothing came back that can be used.
        """
        seconds, name = self._settings.timeout_seconds, self._settings.declaration.name
        params = CallToolRequestParams(name=tool, arguments={**arguments})
        try:
            async with asyncio.timeout(seconds) as limit:
                # Not `call_tool`, which would check results by the server's own schema, unbounded.
                result = await self._open.session.send_request(
                    CallToolRequest(params=params), _RESULT
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            told = f"{name} did not answer within {seconds:g} s; it may or may not have done it"
            raise ServerTooSlowError(told) from error
        except MCPError as error:
            raise self._failure(error) from error
        except ValidationError as error:
            raise FailedToolError(f"{name} answered with what is no result") from error
        except _ENDED as error:
            self.over.set()
            raise FailedToolError(_amid(name)) from error
        if isinstance(result, InputRequiredResult):
            raise FailedToolError(f"{name} asks for input amid the call, which is not supported")
        return await asyncio.to_thread(rendered, result, name)

    async def hold(self) -> None:
        """Keep it until it is over, and hear of changes."""
        async with background_tasks() as tasks:
            tools = self._open.server_capabilities.tools
            modern = self._open.protocol_version in MODERN_PROTOCOL_VERSIONS
            if modern and tools is not None and tools.list_changed:
                tasks.start("listen to an MCP server", self._listen())
            await self.over.wait()

    def opened(self, client: Client) -> None:
        """Take the client that it works through."""
        self._client = client

    async def told(self, message: object) -> None:
        """Hear what the server tells unasked."""
        if isinstance(message, ToolListChangedNotification):
            self._fresh_until = 0.0

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise RuntimeError("the connection is not open yet")
        return self._client

    def _failure(self, error: MCPError) -> Exception:
        name, code = self._settings.declaration.name, error.error.code
        if self._is_forgotten(error):
            return SessionEndedError()
        if code == CONNECTION_CLOSED and error.error.message == "Connection closed":
            self.over.set()
        if self.over.is_set():
            return FailedToolError(_amid(name))
        if code == PARSE_ERROR and "validation error" in error.error.message:
            return FailedToolError(f"{name} answered with what cannot be read")
        told = f"{name} answered with an error: {message_of(error)}"
        return RetryToolError(told) if code == INVALID_PARAMS else FailedToolError(told)

    def _is_forgotten(self, error: MCPError) -> bool:
        if (error.error.code, error.error.message) != (INVALID_REQUEST, "Session terminated"):
            return False
        self.forgotten = True
        self.over.set()
        return True

    async def _listed(self) -> McpCatalogue:
        listed: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._open.list_tools(cursor=cursor)
            listed += [
                ListedTool(each.name, each.description or "", each.input_schema)
                for each in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        declaration = self._settings.declaration
        tools = await asyncio.to_thread(offered_tools, declaration, listed, taken=self._taken)
        self._note(len(listed), {each.name: each.refusal for each in tools if each.refusal})
        return McpCatalogue(self._open.protocol_version, tuple(tools))

    def _note(self, listed: int, refused: Mapping[str, str]) -> None:
        log = structlog.get_logger("mcp").bind(server=self._settings.declaration.name)
        for name, why in refused.items():
            log.warning("MCP tool is refused", tool=name, why=why)
        if listed > MAX_TOOLS:
            log.warning("MCP server has too many tools", tools=listed, looked_at=MAX_TOOLS)

    async def _listen(self) -> None:
        """Hear of changes from servers that tell of them only when they are asked to."""
        while True:
            try:
                async with self._open.listen(tools_list_changed=True) as events:
                    # What changed before anybody listened was not told.
                    self._fresh_until = 0.0
                    async for _ in events:
                        self._fresh_until = 0.0
            except (MCPError, SubscriptionLost, httpx2.HTTPError, *_ENDED):
                pass
            await asyncio.sleep(_LISTEN_PAUSE)


@asynccontextmanager
async def connected(
    settings: McpServerSettings, *, taken: Container[str]
) -> AsyncIterator[Connection]:
    """A connection to a server, with its tools known, for as long as the block lasts.

    Both revisions of the protocol are spoken: the newer one is asked for first.

    Args:
        settings: of the server.
        taken: names of tools that no server's may have.

    Raises:
        Exception: the server cannot be reached, or does not answer as it should.
    """
    connection = Connection(settings, taken)
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = Client(
                _streams(settings, connection.over.set),
                client_info=Implementation(name="ChatMind", version="1"),
                message_handler=connection.told,
                cache=None,
            )
            connection.opened(await stack.enter_async_context(client))
            await connection.catalogue()
        yield connection


def message_of(error: MCPError) -> str:
    """What a server says is wrong, as a person would see it, bounded."""
    return shortened(visible(error.error.message), _MOST_MESSAGE_BYTES)


@asynccontextmanager
async def _streams(
    settings: McpServerSettings, ended: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    async with _transport(settings, ended) as (read, write):
        yield Tidied(read), write


def _transport(
    settings: McpServerSettings, ended: Callable[[], None]
) -> AbstractAsyncContextManager[Any]:
    if isinstance(settings.reach, HttpSettings):
        return http_streams(settings.reach, timeout_seconds=settings.timeout_seconds)
    return stdio_streams(settings.reach, name=settings.declaration.name, ended=ended)


def _amid(name: str) -> str:
    return f"the connection to {name} ended amid the call; it may or may not have done it"
