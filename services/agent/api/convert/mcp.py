"""MCP servers for the wire."""

from typing import Final

from chatmind.agent.v1 import mcp_pb2

from services.agent.domain.mcp.models import McpConsent, McpServer, McpTool, McpTransport
from services.common.convert import from_json

_TRANSPORTS: Final = {
    McpTransport.STDIO: mcp_pb2.McpServer.TRANSPORT_STDIO,
    McpTransport.HTTP: mcp_pb2.McpServer.TRANSPORT_HTTP,
}
_CONSENTS: Final = {
    None: mcp_pb2.McpTool.CONSENT_UNSPECIFIED,
    McpConsent.APPROVED: mcp_pb2.McpTool.CONSENT_APPROVED,
    McpConsent.NEW: mcp_pb2.McpTool.CONSENT_NEW,
    McpConsent.CHANGED: mcp_pb2.McpTool.CONSENT_CHANGED,
    McpConsent.REFUSED: mcp_pb2.McpTool.CONSENT_REFUSED,
}


def from_server(value: McpServer) -> mcp_pb2.McpServer:
    """A server for the wire."""
    found = value.catalogue
    return mcp_pb2.McpServer(
        name=value.name,
        transport=_TRANSPORTS[value.transport],
        state=(
            mcp_pb2.McpServer.STATE_UNAVAILABLE
            if found is None
            else mcp_pb2.McpServer.STATE_CONNECTED
        ),
        protocol_version="" if found is None else found.protocol_version,
        error=value.error,
        tools=[_tool(each, value) for each in (() if found is None else found.tools)],
        bound=value.bound,
    )


def _tool(tool: McpTool, server: McpServer) -> mcp_pb2.McpTool:
    refused = McpConsent.REFUSED if tool.refusal else None
    return mcp_pb2.McpTool(
        name=tool.name,
        original_name=tool.original_name,
        description=tool.description,
        input_schema=from_json(tool.input_schema),
        digest=tool.digest,
        consent=_CONSENTS[server.consents.get(tool.digest, refused)],
        refusal=tool.refusal,
        read_only=tool.read_only,
    )
