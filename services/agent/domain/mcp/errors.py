"""How calls of MCP tools fail, besides as any tool's do."""

from services.agent.domain.tools.errors import ToolError


class ServerTooSlowError(ToolError):
    """The server did not answer in time."""

    word = "timeout"
    advice = ""


class ToolChangedError(ToolError):
    """The tool is no longer what it was when it was offered."""

    word = "changed"
    advice = ""
